SELECT
  tenant_id, store_id, request_id, question, asked_at, split, sha256(question) AS question_hash,
  bit_xor(fingerprint(request_id, question, asked_at, split))
    OVER (PARTITION BY tenant_id, store_id) AS store_fingerprint,
  shard_of(tenant_id, store_id, $shards) AS shard
FROM checked WHERE problem IS NULL
