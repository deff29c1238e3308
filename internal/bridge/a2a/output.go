package a2a

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/parley-project/parley/internal/bridge"
)

// output is what a completed answer gives to the workflow: all members of the
// result, then what was extracted from it, which wins over members of the same
// name: text (the texts of all artifacts), response (what the agent said last),
// data (the value of the one data part of the artifacts, or a list of them),
// context_id and task_id. artifacts and metadata are members already. If nothing
// was extracted it is the result as it stands (BR-2.4 to BR-2.9, BR-4.6).
func (a *answer) output() json.RawMessage {
	if len(a.raw) == 0 || a.raw[0] != '{' {
		return slices.Clone(a.raw)
	}
	var text, response, data []byte
	taskID := a.id
	if a.sort == sortMessage {
		taskID = a.taskID
		texts, values := a.contents(a.parts, "result")
		text, response, data = joined(texts), first(texts), oneOrAll(values)
	} else {
		texts, values := a.artifactContents()
		text, data = joined(texts), oneOrAll(values)
		response = a.lastWords()
	}
	extra := []struct {
		name  string
		value []byte
	}{{"text", text}, {"response", response}, {"data", data}, {"context_id", stringOnly(a.contextID)}, {"task_id", stringOnly(taskID)}}

	size, found := len(a.raw)+64, false
	for _, e := range extra {
		size += len(e.value)
		found = found || e.value != nil
	}
	if !found {
		return slices.Clone(a.raw)
	}
	b := make([]byte, 0, size)
	if a.clashes {
		b = append(b, '{')
	members:
		for name, value := range bridge.Members(a.raw) {
			for _, e := range extra {
				if e.value != nil && string(name) == e.name {
					continue members
				}
			}
			b = member(b, name, value)
		}
	} else {
		b = append(b, a.raw[:len(a.raw)-1]...)
	}
	for _, e := range extra {
		if e.value != nil {
			b = member(b, []byte(e.name), e.value)
		}
	}
	return append(b, '}')
}

func member(b, name, value []byte) []byte {
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = quote(b, name)
	b = append(b, ':')
	return append(b, value...)
}

func stringOnly(raw []byte) []byte {
	if len(raw) > 2 && raw[0] == '"' {
		return raw
	}
	return nil
}

// artifactContents gives the texts and the data of all artifacts in their order.
func (a *answer) artifactContents() (texts, data [][]byte) {
	if present(a.artifacts) && a.artifacts[0] != '[' {
		a.warn("result.artifacts is not an array")
	}
	for artifact := range bridge.Elements(a.artifacts) {
		if artifact[0] != '{' {
			if present(artifact) {
				a.warn("result.artifacts holds something that is not an object")
			}
			continue
		}
		t, d := a.contents(partsOf(artifact), "result.artifacts")
		texts, data = append(texts, t...), append(data, d...)
	}
	return texts, data
}

// lastWords is the first text of the newest entry of history that is the
// agent's and has one, else of the message in status (BR-2.8, BR-2.9).
func (a *answer) lastWords() []byte {
	if present(a.history) && a.history[0] != '[' {
		a.warn("result.history is not an array")
	}
	var words []byte
	for entry := range bridge.Elements(a.history) {
		if role := roleOf(entry); role != "agent" && role != "ROLE_AGENT" {
			continue
		}
		if text := first(a.partTexts(entry, "result.history")); text != nil {
			words = text
		}
	}
	if words == nil {
		words = first(a.partTexts(a.statusMessage, "result.status.message"))
	}
	return words
}

func roleOf(message []byte) string {
	for name, value := range bridge.Members(message) {
		if string(name) == "role" {
			role, _ := bridge.Text(value)
			return role
		}
	}
	return ""
}

// partTexts gives the texts of a message.
func (a *answer) partTexts(holder []byte, where string) [][]byte {
	if !present(holder) {
		return nil
	}
	if holder[0] != '{' {
		a.warn(where + " holds something that is not an object")
		return nil
	}
	texts, _ := a.contents(partsOf(holder), where)
	return texts
}

// contents gives the texts (as raw JSON strings) and the data of a list of
// parts.
func (a *answer) contents(parts []byte, where string) (texts, data [][]byte) {
	if present(parts) && parts[0] != '[' {
		a.warn(where + ": parts is not an array")
	}
	for raw := range bridge.Elements(parts) {
		p := contentOf(raw)
		switch {
		case p.text != nil:
			texts = append(texts, p.text)
		case p.data != nil:
			data = append(data, p.data)
		}
		switch {
		case p.kind == nil && !a.bare:
		case p.kind == nil && p.text != nil:
			a.warn(where + ": a part has no kind; its text is taken")
		case p.kind == nil:
			a.warn(where + ": a part has no kind")
		case string(p.kind) == `"text"` && p.text == nil:
			a.warn(where + ": a text part has no text")
		}
	}
	return texts, data
}

// told is what of a part of either dialect is passed on by itself.
type told struct{ kind, text, data []byte }

// contentOf reads a part. What has a kind is that; what has none is what it
// holds.
func contentOf(raw []byte) told {
	var c told
	for name, value := range bridge.Members(raw) {
		switch string(name) {
		case "kind":
			c.kind = value
		case "text":
			c.text = value
		case "data":
			c.data = value
		}
	}
	if c.kind != nil && string(c.kind) != `"text"` || len(c.text) < 2 || c.text[0] != '"' {
		c.text = nil
	}
	if c.kind != nil && string(c.kind) != `"data"` {
		c.data = nil
	}
	return c
}

// oneOrAll is the one value, or the list of several, or nil.
func oneOrAll(values [][]byte) []byte {
	if len(values) < 2 {
		return first(values)
	}
	return append(append([]byte{'['}, bytes.Join(values, []byte{','})...), ']')
}

func first(texts [][]byte) []byte {
	if len(texts) == 0 {
		return nil
	}
	return texts[0]
}

// joined splices JSON strings into one, with line ends between them; nil if
// there are none.
func joined(texts [][]byte) []byte {
	if len(texts) < 2 {
		return first(texts)
	}
	size := 2
	for _, t := range texts {
		size += len(t)
	}
	b := append(make([]byte, 0, size), '"')
	for i, t := range texts {
		if i > 0 {
			b = append(b, '\\', 'n')
		}
		b = append(b, t[1:len(t)-1]...)
	}
	return append(b, '"')
}
