package a2a

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// PartsMode is how the input of a step becomes the parts of a message.
type PartsMode string

// The modes (protocol_config.parts).
const (
	// PartsText: one text part (BR-6).
	PartsText PartsMode = "text"
	// PartsData: a string is a text part, every other value one data part. A2A
	// 0.3 has objects there only: other values are sent as {"value": …}.
	PartsData PartsMode = "data"
	// PartsList: the input's member parts lists them, see [Parts].
	PartsList PartsMode = "parts"
	// PartsAuto is PartsData for agents that declare to accept JSON, else
	// PartsText.
	PartsAuto PartsMode = "auto"
)

const (
	// maxParts bounds the parts of one message.
	maxParts = 256
	// maxInline bounds one file inside a message, decoded, in bytes.
	maxInline = 1 << 20
)

// Parts makes the message parts of input in the form of v.
//
// With PartsText that is always exactly one text part (BR-6): the input's text
// if it is truthy, else its query if that is, else the whole input as JSON. A
// string is taken as it is, without being decoded and encoded again; any other
// value becomes its JSON text, byte for byte. Of a member that repeats the last
// counts.
//
// With PartsList each part is an object with one of text (a string), data (any
// value), url (of a file) and raw (a file, base64, at most 1 MiB decoded), and
// besides media_type, filename and metadata. What agents give as parts, in
// either dialect, is taken too, so that one agent's output can be another's
// input.
func Parts(v Version, mode PartsMode, input json.RawMessage) ([]byte, error) {
	return appendParts(make([]byte, 0, len(input)+len(input)/8+48), content{version: v, mode: mode, input: input})
}

// content is what a message says: the input of a step in one of the modes, or
// an answer.
type content struct {
	version Version
	mode    PartsMode
	input   json.RawMessage
	reply   *parley.Reply
	// python: texts are spelled as the existing platform spells them.
	python bool
}

// appendParts appends the parts of c.
func appendParts(b []byte, c content) ([]byte, error) {
	if c.reply != nil {
		return appendReply(b, c.version, *c.reply)
	}
	v, mode := c.version, c.mode
	raw, err := bridge.CheckJSON("input", c.input)
	if err != nil {
		return nil, bridge.Defectf("bad_input", "the task cannot be sent: %v", err)
	}
	b = append(b, '[')
	switch {
	case mode == PartsList:
		if b, err = appendList(b, v, raw); err != nil {
			return nil, err
		}
	case mode == PartsData && raw[0] != '"':
		b = appendPart(b, v, part{data: raw})
	default:
		b = appendPart(b, v, part{text: c.words(raw)})
	}
	return append(b, ']'), nil
}

// words is what of an input is sent as its text (BR-6), as a JSON value.
func (c *content) words(raw []byte) []byte {
	text, whole := chosen(raw)
	if c.python && text[0] != '"' {
		return pythonText(text, whole)
	}
	return text
}

// chosen is the value that is sent as a text; whole: it is all of the input.
func chosen(raw []byte) (value []byte, whole bool) {
	if raw[0] != '{' {
		return raw, true
	}
	var text, query []byte
	for name, v := range bridge.Members(raw) {
		switch string(name) {
		case "text":
			text = v
		case "query":
			query = v
		}
	}
	switch {
	case truthy(text):
		return text, false
	case truthy(query):
		return query, false
	}
	return raw, true
}

// truthy reports whether raw would count as true where the old platform asks
// (formats.md): absent, null, false, zero and what is empty do not.
func truthy(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '"':
		return len(raw) > 2
	case '{':
		for range bridge.Members(raw) {
			return true
		}
		return false
	case '[':
		for range bridge.Elements(raw) {
			return true
		}
		return false
	case 't':
		return true
	case 'f', 'n':
		return false
	}
	f, _ := strconv.ParseFloat(string(raw), 64) // what is too small for one is zero
	return f != 0
}

// part is one part of a message in no dialect: raw JSON values, nil if absent.
// Exactly one of text, data, url and raw is set.
type part struct {
	text, data, url, raw []byte
	mediaType, filename  []byte
	metadata             []byte
}

// appendList appends the parts that the input lists.
func appendList(b []byte, v Version, input []byte) ([]byte, error) {
	var list []byte
	for name, value := range bridge.Members(input) {
		if string(name) == "parts" {
			list = value
		}
	}
	if len(list) == 0 || list[0] != '[' {
		return nil, bridge.Defectf("bad_input", `the task cannot be sent: protocol_config.parts is "parts", so the input must be an object whose member parts is a list`)
	}
	n := 0
	for raw := range bridge.Elements(list) {
		if n++; n > maxParts {
			return nil, limitError("parts", maxParts, "the input has more than %d parts; send less, or a url to a file", maxParts)
		}
		p, err := readPart(raw)
		if err == nil {
			err = p.check()
		}
		if err != nil {
			return nil, about(err, n)
		}
		if n > 1 {
			b = append(b, ',')
		}
		b = appendPart(b, v, p)
	}
	if n == 0 {
		return nil, bridge.Defectf("bad_input", "the task cannot be sent: input.parts is empty")
	}
	return b, nil
}

// about says which part err is about.
func about(err error, n int) error {
	if e, ok := err.(*bridge.DefectError); ok { //nolint:errorlint // it is never wrapped here
		return bridge.Defectf(e.Kind, "the task cannot be sent: input.parts[%d] %s", n-1, e.Text)
	}
	return err
}

func limitError(limit string, value int, format string, args ...any) *parley.Error {
	return parley.Errorf(parley.CodeLimit, format, args...).WithDetails(map[string]any{"limit": limit, "value": value})
}

// readPart reads a part of any spelling: ours, 1.0's, or 0.3's.
func readPart(raw []byte) (part, error) {
	if raw[0] != '{' {
		return part{}, bridge.Defectf("bad_input", "is not an object")
	}
	var p part
	for name, value := range bridge.Members(raw) {
		if string(name) == "file" {
			for name, value := range bridge.Members(value) {
				if member := p.member(name); member != nil {
					*member = value
				}
			}
			continue
		}
		if string(name) == "kind" {
			continue
		}
		member := p.member(name)
		if member == nil {
			return part{}, bridge.Defectf("bad_input", "has the unknown member %q; known are text, data, url, raw, media_type, filename, metadata", limited(string(name)))
		}
		*member = value
	}
	return p, nil
}

// member finds a member by each of its names.
func (p *part) member(name []byte) *[]byte {
	switch string(name) {
	case "text":
		return &p.text
	case "data":
		return &p.data
	case "url", "uri":
		return &p.url
	case "raw", "bytes":
		return &p.raw
	case "media_type", "mediaType", "mimeType":
		return &p.mediaType
	case "filename", "name":
		return &p.filename
	case "metadata":
		return &p.metadata
	}
	return nil
}

// check says what is wrong with p. A member that is null counts as absent, but
// for data.
func (p *part) check() error {
	for _, member := range []*[]byte{&p.text, &p.url, &p.raw, &p.mediaType, &p.filename, &p.metadata} {
		if string(*member) == "null" {
			*member = nil
		}
	}
	n := 0
	for _, content := range [][]byte{p.text, p.data, p.url, p.raw} {
		if content != nil {
			n++
		}
	}
	if n != 1 {
		return bridge.Defectf("bad_input", "must have exactly one of text, data, url and raw")
	}
	for _, s := range []struct {
		name  string
		value []byte
	}{{"text", p.text}, {"url", p.url}, {"raw", p.raw}, {"media_type", p.mediaType}, {"filename", p.filename}} {
		if s.value != nil && s.value[0] != '"' {
			return bridge.Defectf("bad_input", "%s must be a string", s.name)
		}
	}
	if p.metadata != nil && p.metadata[0] != '{' {
		return bridge.Defectf("bad_input", "metadata must be an object")
	}
	if p.url != nil {
		s, _ := bridge.Text(p.url)
		if u, err := url.Parse(s); err != nil || u.Scheme == "" {
			return bridge.Defectf("bad_input", "url must be a whole URL")
		}
	}
	return p.checkFile()
}

// checkFile checks a file that is sent inside the message.
func (p *part) checkFile() error {
	if p.raw == nil {
		return nil
	}
	text, _ := bridge.Text(p.raw)
	if base64.StdEncoding.DecodedLen(len(text)) > maxInline+2 {
		return limitError("inline_file", maxInline, "a file inside a message may have %d bytes at most; put it where the agent can fetch it and pass its url", maxInline)
	}
	file, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return bridge.Defectf("bad_input", "raw is not base64")
	}
	if len(file) > maxInline {
		return limitError("inline_file", maxInline, "a file inside a message may have %d bytes at most; put it where the agent can fetch it and pass its url", maxInline)
	}
	return nil
}

// appendPart writes p in the form of v.
func appendPart(b []byte, v Version, p part) []byte {
	b = append(b, '{')
	if v == V10 {
		b = p.append10(b)
	} else {
		b = p.append03(b)
	}
	b = optional(b, "metadata", p.metadata)
	return append(b, '}')
}

// append10 writes the members of a part of A2A 1.0 (§4.1.6).
func (p *part) append10(b []byte) []byte {
	switch {
	case p.text != nil:
		b = appendText(append(b, `"text":`...), p.text)
	case p.data != nil:
		b = append(append(b, `"data":`...), p.data...)
		if p.mediaType == nil {
			b = append(b, `,"mediaType":"application/json"`...)
		}
	case p.url != nil:
		b = append(append(b, `"url":`...), p.url...)
	default:
		b = append(append(b, `"raw":`...), p.raw...)
	}
	b = optional(b, "mediaType", p.mediaType)
	return optional(b, "filename", p.filename)
}

// append03 writes the members of a part of A2A 0.3 (§6.5), which has a name and
// a media type for files alone.
func (p *part) append03(b []byte) []byte {
	switch {
	case p.text != nil:
		return appendText(append(b, `"kind":"text","text":`...), p.text)
	case p.data != nil && p.data[0] == '{':
		return append(append(b, `"kind":"data","data":`...), p.data...)
	case p.data != nil:
		b = append(append(b, `"kind":"data","data":{"value":`...), p.data...)
		return append(b, '}')
	case p.url != nil:
		b = append(append(b, `"kind":"file","file":{"uri":`...), p.url...)
	default:
		b = append(append(b, `"kind":"file","file":{"bytes":`...), p.raw...)
	}
	b = optional(b, "mimeType", p.mediaType)
	b = optional(b, "name", p.filename)
	return append(b, '}')
}

// appendText appends a string as it is, and any other value as its JSON text.
func appendText(b, value []byte) []byte {
	if value[0] == '"' {
		return append(b, value...)
	}
	return quote(b, value)
}

// optional appends a further member unless it is absent.
func optional(b []byte, name string, value []byte) []byte {
	if value == nil {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return append(b, value...)
}

// appendReply appends the parts of an answer to an agent's question: its text,
// its data, or both.
func appendReply(b []byte, v Version, r parley.Reply) ([]byte, error) {
	b = append(b, '[')
	if r.Text != "" || len(r.Data) == 0 {
		b = appendPart(b, v, part{text: quote(nil, r.Text)})
	}
	if len(r.Data) > 0 {
		data, err := bridge.CheckJSON("the answer's data", r.Data)
		if err != nil {
			return nil, bridge.Defectf("bad_input", "the answer cannot be sent: %v", err)
		}
		if r.Text != "" {
			b = append(b, ',')
		}
		b = appendPart(b, v, part{data: data})
	}
	return append(b, ']'), nil
}
