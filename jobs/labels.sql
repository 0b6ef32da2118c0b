-- Evidence labels, for training and measuring. Nothing before `train` and `eval` reads them.
SELECT tenant_id, store_id, request_id, turn_id, relevance
FROM input.labels
