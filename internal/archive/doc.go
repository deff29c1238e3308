// Package archive writes runs that are over as lines of text, reads such lines
// back, and keeps files of them: what leaves the database by its own rules, or goes
// to another one.
//
// A line is one JSON object: {"format":"parley-run/1","run":{…},"definition":{…},
// "events":[…],"attempts":[…]}, members in the order of this package, absent where
// there is nothing. Times are RFC 3339 in UTC, in microseconds. A value of a workflow
// stands in the line byte for byte; one that cannot, because it is no JSON or holds a
// line end, stands as base64 in a member of the same name with _bytes behind it. So
// equal runs have equal lines.
package archive
