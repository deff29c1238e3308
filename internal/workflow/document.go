package workflow

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
)

// Document is a file beside workflows, such as the script of a dry run, read by
// the same rules (D1): YAML or JSON, with the place of every value.
type Document struct {
	file   string
	root   *node
	reader *nodeReader
	json   json.RawMessage
}

// ReadDocument reads a file and checks it against a schema. The document is nil
// if there are problems: all that were found, by position.
func ReadDocument(file string, source []byte, schema *Schema) (*Document, parley.Problems) {
	root, reader := nodeRead(source, ParseLimits{}.filled())
	d := &Document{file: file, root: root, reader: reader}
	problems := reader.problems
	if root != nil && !problemsFail(problems) {
		d.json = root.json()
		problems = append(problems, d.misfits(schema)...)
	}
	if root == nil || problemsFail(problems) {
		for i := range problems {
			problems[i].File = file
		}
		return nil, problemsSort(problems, reader.dropped)
	}
	return d, nil
}

// JSON gives the document as JSON: members in their order, digits as they were
// written.
func (d *Document) JSON() json.RawMessage { return d.json }

// Problem gives an error at the place that a JSON pointer leads to, or at the
// last place on the way that there is. offset is a byte of the text there.
func (d *Document) Problem(pointer string, offset int, p parley.Problem) parley.Problem {
	n := d.root.at(pointer)
	p.File, p.Path, p.Severity = d.file, n.path(), parley.SeverityError
	p.Line, p.Col = d.reader.within(n, offset)
	return p
}

// misfits gives what does not fit the schema. Members that it does not allow
// are named where they stand.
func (d *Document) misfits(schema *Schema) []parley.Problem {
	fault, ok := errors.AsType[*SchemaError](schema.Check(d.json))
	if !ok {
		return nil
	}
	var out []parley.Problem
	for _, f := range fault.Findings {
		names := notAllowed(f.Text)
		for _, name := range names {
			p := d.Problem(f.Pointer, 0, parley.Problem{Code: problemUnknown, Text: "unknown member " + strconv.Quote(name)})
			of := d.root.at(f.Pointer)
			for _, m := range of.members {
				if m.name == name {
					p.Line, p.Col, p.Path = m.line, m.col, m.value.path()
				}
			}
			out = append(out, p)
		}
		if len(names) == 0 {
			out = append(out, d.Problem(f.Pointer, 0, parley.Problem{Code: problemSchema, Text: "this " + f.Text}))
		}
	}
	return out
}

// notAllowed gives the names of a finding of [schemaText] about members.
func notAllowed(text string) (names []string) {
	list, ok := strings.CutSuffix(text, ", which the schema does not allow")
	if !ok || !strings.HasPrefix(list, `has "`) {
		return nil
	}
	for rest := strings.TrimPrefix(list, "has "); rest != ""; rest = strings.TrimPrefix(rest, ", ") {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil
		}
		name, err := strconv.Unquote(quoted)
		if err != nil {
			return nil
		}
		names, rest = append(names, name), rest[len(quoted):]
	}
	return slices.Compact(names)
}
