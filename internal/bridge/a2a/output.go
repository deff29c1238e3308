package a2a

import (
	"encoding/json"
	"slices"

	"github.com/parley-project/parley/internal/bridge"
)

// output is what a completed answer gives to the workflow: all members of the
// result, then what was extracted from it, which wins over members of the same
// name: text (the texts of all artifacts), response (what the agent said last),
// context_id and task_id. artifacts and metadata are members already. If nothing
// was extracted it is the result as it stands (BR-2.4 to BR-2.9, BR-4.6).
func (a *answer) output() json.RawMessage {
	if len(a.raw) == 0 || a.raw[0] != '{' {
		return slices.Clone(a.raw)
	}
	var text, response []byte
	taskID := a.id
	if a.isMessage() {
		taskID = a.taskID
		texts := a.textsOf(a.parts, "result")
		text, response = joined(texts), first(texts)
	} else {
		text = joined(a.artifactTexts())
		response = a.lastWords()
	}
	extra := []struct {
		name  string
		value []byte
	}{{"text", text}, {"response", response}, {"context_id", stringOnly(a.contextID)}, {"task_id", stringOnly(taskID)}}

	size, found := len(a.raw)+64, false
	for _, e := range extra {
		size += len(e.value)
		found = found || e.value != nil
	}
	if !found {
		return slices.Clone(a.raw)
	}
	b := append(make([]byte, 0, size), '{')
members:
	for name, value := range bridge.Members(a.raw) {
		for _, e := range extra {
			if e.value != nil && string(name) == e.name {
				continue members
			}
		}
		b = member(b, name, value)
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

// artifactTexts gives the text parts of all artifacts in their order.
func (a *answer) artifactTexts() [][]byte {
	if present(a.artifacts) && a.artifacts[0] != '[' {
		a.warn("result.artifacts is not an array")
	}
	var all [][]byte
	for artifact := range bridge.Elements(a.artifacts) {
		all = append(all, a.partTexts(artifact, "result.artifacts")...)
	}
	return all
}

// lastWords is the first text of the newest entry of history that is the
// agent's and has one, else of the message in status (BR-2.8, BR-2.9).
func (a *answer) lastWords() []byte {
	if present(a.history) && a.history[0] != '[' {
		a.warn("result.history is not an array")
	}
	var words []byte
	for entry := range bridge.Elements(a.history) {
		if roleOf(entry) != "agent" {
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

// partTexts gives the text parts of an artifact or a message.
func (a *answer) partTexts(holder []byte, where string) [][]byte {
	if !present(holder) {
		return nil
	}
	if holder[0] != '{' {
		a.warn(where + " holds something that is not an object")
		return nil
	}
	for name, value := range bridge.Members(holder) {
		if string(name) == "parts" {
			return a.textsOf(value, where)
		}
	}
	return nil
}

// textsOf gives the texts of a list of parts, as raw JSON strings.
func (a *answer) textsOf(parts []byte, where string) [][]byte {
	if present(parts) && parts[0] != '[' {
		a.warn(where + ": parts is not an array")
	}
	var texts [][]byte
	for part := range bridge.Elements(parts) {
		var kind, text []byte
		for name, value := range bridge.Members(part) {
			switch string(name) {
			case "kind":
				kind = value
			case "text":
				text = value
			}
		}
		isText := len(text) >= 2 && text[0] == '"'
		switch {
		case string(kind) == `"text"` && isText:
			texts = append(texts, text)
		case string(kind) == `"text"`:
			a.warn(where + ": a text part has no text")
		case kind == nil && isText:
			a.warn(where + ": a part has no kind; its text is taken")
			texts = append(texts, text)
		case kind == nil:
			a.warn(where + ": a part has no kind")
		}
	}
	return texts
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
