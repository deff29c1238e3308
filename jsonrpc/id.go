package jsonrpc

import (
	"errors"
	"strconv"
)

// An ID is the id of a request, as the JSON text that stood on the wire: a
// string, a number or null, byte for byte. Ids are never turned into numbers
// of Go, so 9007199254740993 and 1.0 come back as they were sent. The zero ID
// is the absent one, of a notification.
//
// IDs are comparable by their text: "a" and "\u0061" are the same string for
// JSON, but different IDs. JSON-RPC 2.0 section 4 says what an id may be;
// fractional ones, which it says a client should not send, are accepted.
type ID struct{ text string }

// IntegerID returns the id that is the number n.
func IntegerID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// StringID returns the id that is the string s. Bytes that are not UTF-8
// become U+FFFD.
func StringID(s string) ID { return ID{string(appendString(nil, s))} }

// NullID returns the id null, which JSON-RPC 2.0 has for answers to requests
// whose id could not be read.
func NullID() ID { return ID{"null"} }

// ParseID returns the id that raw is the JSON text of: one string, number or
// null. Whitespace around it is dropped. An empty text is an error, not the
// absent id.
func ParseID(raw []byte) (ID, error) {
	start := skipSpace(raw, 0)
	end := skipValue(raw, start, 0)
	if end < 0 || skipSpace(raw, end) != len(raw) || !isID(raw[start]) {
		return ID{}, errors.New("jsonrpc: an id is a JSON string, number or null")
	}
	return ID{string(raw[start:end])}, nil
}

// String returns the JSON text of the id, or "" for the absent one.
func (id ID) String() string { return id.text }

// IsZero says whether the id is absent. It makes the json option omitzero
// leave out an absent id.
func (id ID) IsZero() bool { return id.text == "" }

// IsNull says whether the id is null.
func (id ID) IsNull() bool { return id.text == "null" }

// MarshalJSON returns the id's text; the absent id becomes null.
func (id ID) MarshalJSON() ([]byte, error) {
	if id.text == "" {
		return []byte("null"), nil
	}
	return []byte(id.text), nil
}

// UnmarshalJSON takes a string, a number or null.
func (id *ID) UnmarshalJSON(text []byte) error {
	parsed, err := ParseID(text)
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
