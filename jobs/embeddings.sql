-- A vector for each text that has none yet. Rows are addressed by content: an unchanged text is never embedded again. A
-- text on which the encoder failed is not among `embeddings`, and is tried again.
SELECT content_hash, purpose, encoder_hash, e['vector'] AS vector, e['truncated'] AS truncated
FROM (
  SELECT content_hash, purpose, encoder_hash, embed(text, purpose) AS e
  FROM (
    SELECT content_hash, purpose, $encoder_hash AS encoder_hash, first_value(text) AS text
    FROM (
      SELECT content_hash, 'passage' AS purpose, content AS text FROM turns WHERE content_hash IS NOT NULL
      UNION ALL
      SELECT question_hash AS content_hash, 'query' AS purpose, question AS text FROM requests
    )
    GROUP BY content_hash, purpose
  ) AS texts
  LEFT ANTI JOIN embeddings
    ON texts.content_hash = embeddings.content_hash
    AND texts.purpose = embeddings.purpose
    AND texts.encoder_hash = embeddings.encoder_hash
)
