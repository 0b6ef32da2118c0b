SELECT
  tenant_id, store_id, request_id, question, asked_at, split, sha256(question) AS question_hash,
  fingerprint(request_id, question, asked_at, split) AS row_fingerprint,
  shard_of(tenant_id, store_id, $shards) AS shard
FROM checked WHERE problem IS NULL
