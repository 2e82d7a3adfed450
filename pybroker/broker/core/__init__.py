"""What the broker decides: routing, dispatch, acknowledgement, redelivery, transactions, mastership."""
