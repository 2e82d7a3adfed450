// REST of the member, relative to the console: it works below any path of a reverse proxy.

import { syncClock } from "./format.js";

const BASE = new URL("../api/v1/", import.meta.url);
const ANSWER_MS = 10_000;
const OPERATION_MS = 11 * 60_000;
const LINES = "application/x-ndjson";

/** An error that the member answers, in one sentence. */
export class ApiError extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** There is no answer of the member: its process has ended, hangs, or is out of reach. */
export class NoAnswer extends Error {}

/** Return the path of an object with a name. */
export function path(...parts) {
  return parts.map(segment).join("/");
}

function segment(part) {
  const text = String(part).toWellFormed();
  if (text === "." || text === "..") throw new ApiError(400, `a browser cannot send the name ${text} in an address`);
  return encodeURIComponent(text);
}

export function get(target, query = {}, signal = undefined) {
  return ask("GET", target, query, undefined, signal, ANSWER_MS);
}

export function post(target, body = {}, signal = undefined) {
  return ask("POST", target, {}, body, signal, OPERATION_MS);
}

/** Have the member do something with many messages; `onProgress` gets, every second, how far it is. */
export function operate(target, body, signal, onProgress) {
  return ask("POST", target, {}, body, signal, OPERATION_MS, onProgress);
}

export function remove(target, query = {}, signal = undefined) {
  return ask("DELETE", target, query, {}, signal, OPERATION_MS);
}

async function ask(method, target, query, body, signal, ms, onProgress = null) {
  const url = new URL(target, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const limit = AbortSignal.timeout(ms);
  const options = { method, cache: "no-store", signal: signal ? AbortSignal.any([signal, limit]) : limit };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  if (onProgress) options.headers.Accept = `${LINES}, application/json`;
  let status = 0;
  let isUnderWay = false;
  let answer;
  try {
    const response = await fetch(url, options);
    status = response.status;
    syncClock(response.headers.get("Date"));
    isUnderWay = response.headers.get("Content-Type")?.startsWith(LINES) ?? false;
    answer = isUnderWay ? await lastLine(response, onProgress) : await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (isUnderWay) throw new NoAnswer("the connection broke: what was done up to then is done");
    if (status) throw new NoAnswer(`a proxy answers for the member, with status ${status}`);
    throw new NoAnswer(limit.aborted ? `no answer within ${ms / 1000} s` : "no connection");
  }
  if (status < 400) return answer;
  const sentence = typeof answer?.error === "string" ? answer.error : `status ${status}`;
  if (status === 504 || status === 502) throw new NoAnswer(sentence);
  throw new ApiError(status, sentence);
}

/** Return the result of an operation, the last of the lines that its answer has; the others say how far it is. */
async function lastLine(response, onProgress) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the answer has no result");
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const each of lines.map((line) => JSON.parse(line))) {
      if ("error" in each) return each;
      onProgress(each);
    }
  }
}
