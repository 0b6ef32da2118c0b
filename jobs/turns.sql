-- The first SELECT: an input's columns as turns. Only store_id, turn_id, role and content must be there; what is left
-- out is NULL, and what can be counted (ordinals, position) is then counted from the times.
SELECT
  tenant_id, store_id, session_id, turn_id, turn_ordinal, session_ordinal, position,
  spoken_at, added_at, role, speaker, content, language
FROM input.turns
