package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
)

const (
	// maxInput bounds an input, in bytes: the most that the setting limits.value takes.
	maxInput = 64 << 20
	// maxKeyDepth bounds the dots of one --set.
	maxKeyDepth = 32
	// orMembers is what commands take with --set.
	orMembers = "single members as --set name=value"
)

// tree is an object under construction: a value is a *tree or JSON bytes that
// are kept as they are.
type tree struct{ members map[string]any }

// buildInput makes the input of a run: base is the JSON of --input or nil, and
// sets are the k=v of --set in order.
func buildInput(base json.RawMessage, sets []string) (json.RawMessage, error) {
	if len(sets) == 0 {
		return base, nil
	}
	root := &tree{members: map[string]any{}}
	if base != nil {
		t, err := openInput(base)
		if err != nil {
			return nil, err
		}
		root = t
	}
	var given [][]string
	for _, s := range sets {
		name, text, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usagef("--set %s: write it as name=value", s)
		}
		if !utf8.ValidString(s) {
			return nil, usagef("--set %s: it is not UTF-8, and would be sent as another text", s)
		}
		keys, err := splitKey(name)
		if err != nil {
			return nil, err
		}
		for _, g := range given {
			// Of a name and one within it, one would be lost, whichever comes first.
			if n := min(len(g), len(keys)); len(g) != len(keys) && slices.Equal(g[:n], keys[:n]) {
				return nil, usagef("--set %s: %s was set to a value before", s, strings.Join(g, "."))
			}
		}
		given = append(given, keys)
		root.set(keys, setValue(text))
	}
	return root.encode()
}

// setValue is JSON if it reads as JSON, else a string.
func setValue(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	b, err := toJSON(text)
	if err != nil {
		// A string always has a JSON form.
		panic(err)
	}
	return b
}

// splitKey splits at dots; "\." is a dot within a name.
func splitKey(name string) ([]string, error) {
	var keys []string
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch {
		case name[i] == '\\' && i+1 < len(name) && (name[i+1] == '.' || name[i+1] == '\\'):
			i++
			b.WriteByte(name[i])
		case name[i] == '.':
			keys = append(keys, b.String())
			b.Reset()
		default:
			b.WriteByte(name[i])
		}
	}
	keys = append(keys, b.String())
	if len(keys) > maxKeyDepth {
		return nil, usagef("--set: a name has more than %d parts", maxKeyDepth)
	}
	if slices.Contains(keys, "") {
		return nil, usagef("--set %s: a part of the name is empty (write \\. for a dot within a name)", name)
	}
	return keys, nil
}

// openInput is open for what --input gives. Of a member that stands there twice one
// would be lost on the way to the server, which refuses it.
func openInput(b json.RawMessage) (*tree, error) {
	if err := jsonv2.Unmarshal(b, new(jsontext.Value)); errors.Is(err, jsontext.ErrDuplicateName) {
		e, _ := errors.AsType[*jsontext.SyntacticError](err)
		return nil, invalidf("--input: member %s appears twice", e.JSONPointer)
	}
	t, ok := open(b)
	if !ok {
		return nil, usagef("--set needs an --input that is an object")
	}
	return t, nil
}

// open reads the members of an object, values as they are.
func open(b json.RawMessage) (*tree, bool) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(b, &raw) != nil || raw == nil {
		return nil, false
	}
	t := &tree{members: make(map[string]any, len(raw))}
	for k, v := range raw {
		t.members[k] = v
	}
	return t, true
}

// set puts value at keys. What stands in the way and is no object is replaced.
func (t *tree) set(keys []string, value json.RawMessage) {
	if len(keys) == 1 {
		t.members[keys[0]] = value
		return
	}
	var inner *tree
	switch v := t.members[keys[0]].(type) {
	case *tree:
		inner = v
	case json.RawMessage:
		inner, _ = open(v)
	}
	if inner == nil {
		inner = &tree{members: map[string]any{}}
	}
	t.members[keys[0]] = inner
	inner.set(keys[1:], value)
}

func (t *tree) encode() (json.RawMessage, error) { return toJSON(t.plain()) }

func (t *tree) plain() map[string]any {
	out := make(map[string]any, len(t.members))
	for k, v := range t.members {
		if inner, ok := v.(*tree); ok {
			v = inner.plain()
		}
		out[k] = v
	}
	return out
}

// readInput reads what --input names: JSON, @FILE or - for standard input.
// Nil if nothing was given. other says what else the command takes.
func (a *app) readInput(text, other string) (json.RawMessage, error) {
	v, err := a.readValue("--input", text)
	if f, ok := errors.AsType[*failure](err); ok && f.code == parley.CodeInvalid && f.hint == "" {
		return nil, f.withHint("write a file as @FILE, and %s", other)
	}
	return v, err
}

// readValue gives the JSON value of a flag: JSON, @FILE, or - for standard
// input.
func (a *app) readValue(flag, text string) (json.RawMessage, error) {
	where, b := flag, []byte(text)
	var err error
	switch {
	case text == "":
		return nil, nil
	case text == "-":
		where = "standard input"
		b, err = readAll(a.stdin, where, maxInput)
	case strings.HasPrefix(text, "@"):
		where = text[1:]
		b, err = readFile(a.path(where), maxInput)
	}
	if err != nil {
		return nil, usagef("%s: %v", flag, err)
	}
	b = withoutMark(b)
	var v json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, invalidf("%s is not JSON: %v", where, jsonFault(b, err))
	}
	return v, nil
}
