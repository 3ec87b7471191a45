-- Format 3 of the journal: the index entries have a table of another name.
--
-- A process of an older version that has the journal open still writes what it knows, which would
-- leave the events of format 2 without entries and give their numbers again. Without its table it
-- fails and says so.

ALTER TABLE event RENAME TO entry;
