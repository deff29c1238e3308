// Package schemas has the JSON Schemas of the documents that people write, for
// editors and for other programs.
package schemas

import _ "embed" // the schemas are files, so that editors can be pointed at them too

//go:embed workflow.json
var workflow []byte

// Names are the documents of which there is a schema.
func Names() []string { return []string{"workflow"} }

// Named gives the JSON Schema (2020-12) of a kind of document; ok is false if
// there is none of that name.
func Named(name string) (schema []byte, ok bool) {
	if name != "workflow" {
		return nil, false
	}
	return append([]byte(nil), workflow...), true
}
