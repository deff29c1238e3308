package store

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzMembers holds the members of an object to what encoding/json says.
func FuzzMembers(f *testing.F) {
	for _, v := range []string{
		`{}`, `null`, `[1,{"a":2}]`, `"{\"a\":1}"`, ` { "a" : 1 , "b":"x\\" ,"c" :[ {"d":"]"} , "}" ] } `, `{"\u0061\"":null,"":true,"a":-1e9}`,
		`{"a":{"b":{"c":[[],{},""]}},"\\":"\\\\\"","x":"\\\\"}`, "{\n\t\"a\"\r:\n\n{}\n}", `{"a":1,"a":2}`, `7`,
	} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		if !json.Valid(v) {
			eachMember(v, func([]byte, span) {}) // it ends all the same
			return
		}
		d := json.NewDecoder(bytes.NewReader(v))
		first, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		object := first == json.Delim('{')
		eachMember(v, func(quoted []byte, s span) {
			if !object {
				t.Fatalf("%q has a member", v)
			}
			name, err := d.Token()
			var value json.RawMessage
			if err == nil {
				err = d.Decode(&value)
			}
			var got string
			if err != nil || json.Unmarshal(quoted, &got) != nil || got != name || string(value) != string(v[s.from:s.to]) {
				t.Fatalf("%q: %s and %q instead of %q and %q (%v)", v, quoted, v[s.from:s.to], name, value, err)
			}
		})
		if object && d.More() {
			t.Fatalf("%q has more members", v)
		}
	})
}
