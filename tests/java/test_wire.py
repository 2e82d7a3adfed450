"""Versions 1 to 12, both encodings, keeping alive, and input that is no OpenWire."""

from typing import Any

import pytest

from tests.java.checks import Laboratory, parametrized, verify

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

EXPECTED: dict[str, Any] = {
    "encodings": [
        {
            "version": 12,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} c "
                "topic://Wire.encodings.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        {
            "version": 12,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} c "
                "topic://Wire.encodings.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        {
            "version": 12,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} c "
                "topic://Wire.encodings.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        {
            "version": 12,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} c "
                "topic://Wire.encodings.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
    ],
    "keptAlive": {"silent": True, "received": ["alive"]},
    "noGreeting": "closed",
    "silentPeerIsGivenUp": "closed",
    "unmonitored": ["alive"],
    "versionsMix": [
        "1 to 12 {property=String of 1} type true",
        "12 to 1 {property=String of 12} type true",
        "2 to 9 {property=String of 2} type true",
        "9 to 2 {property=String of 9} type true",
        "3 to 10 {property=String of 3} type true",
        "12 to 3 {property=String of 12} type true",
        "6 to 11 {property=String of 6} type true",
        "12 to 9 {property=String of 12} type true",
    ],
    "versionsOneToTwelve": {
        "v1": {
            "version": 1,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v2": {
            "version": 2,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v3": {
            "version": 3,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v4": {
            "version": 4,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v5": {
            "version": 5,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v6": {
            "version": 6,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v7": {
            "version": 7,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v8": {
            "version": 8,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v9": {
            "version": 9,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer 5} "
                "c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v10": {
            "version": 10,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer "
                "5} c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v11": {
            "version": 11,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer "
                "5} c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
        "v12": {
            "version": 12,
            "seen": [
                ["text ß"],
                "text ß {JMSXGroupID=String g, JMSXGroupSeq=Integer 0, n=Integer "
                "5} c topic://Wire.versionsOneToTwelve.answers 7 true",
                1099511627776,
                2,
                ["temporary"],
                "javax.jms.InvalidSelectorException",
            ],
        },
    },
    "wrongFrames": {"oversize": "closed", "unknown type": "closed", "random": "closed", "others": ["others go on"]},
}


@parametrized("Wire", EXPECTED)
def test_outcome(laboratory: Laboratory, broker: str, area: str, check: str) -> None:
    verify(laboratory, broker, area, check, EXPECTED)
