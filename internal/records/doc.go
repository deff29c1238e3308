// Package records writes and reads the records of the existing platform's
// topics as they are: every member, in its order, as that platform's own
// programs write them, so that either side of a topic may be one of ours.
//
// # Writing
//
// A record is ASCII-only JSON in the form of Python's json.dumps: separators
// ", " and ": ", everything else than printable ASCII as \uxxxx in lower case.
// Timestamps are UTC without a zone, with six decimals, or none if the
// microseconds are 0. Numbers stand as they were written. What would harm a
// reader there cannot be written:
//
//   - U+0000, lone surrogates and bytes that are not UTF-8 become U+FFFD in
//     texts, values and names of members: its database takes none of them, and
//     a run whose result holds one never ends. They are replaced and not refused,
//     since an answer that was paid for is worth more than that one character.
//     In ids they are refused: a changed id would be another one.
//   - A number that its programs cannot read or cannot store (beyond the range of
//     a float64, or an integer of more than 4,300 digits) is written as a string
//     of the same characters.
//   - The output of a result that is no object is wrapped: {"result": value}.
//   - Values nested more than [MaxDepth] deep are refused with code limit; one
//     such record would stop its reader for good.
//
// # Reading
//
// Unknown members are ignored, of repeated ones the last one counts, values
// are kept byte for byte. The error of a record that cannot be used names the
// member, and what could be read all the same is in the record: enough to answer
// it, as a rule. Values that are read share the memory of the record.
//
// Functions and methods may be called concurrently.
package records
