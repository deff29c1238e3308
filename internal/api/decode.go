package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of JSON that is read (language.md §10).
const maxDepth = 64

// bodyLimit is how much of a body, or of one value in it, is taken, and what to call
// that when it is more.
type bodyLimit struct {
	bytes int64
	name  string
}

// readBody gives the whole body, or a refusal that names the limit.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, limit bodyLimit) ([]byte, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, refuse(http.StatusUnsupportedMediaType, codeMedia, "compressed bodies are not read: send it without Content-Encoding")
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, codeLimit, "the body is larger than the limit %s of %s", limit.name, sizeText(limit.bytes))
	if r.ContentLength > limit.bytes {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	s.deadline(rc.SetReadDeadline)
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit.bytes))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, codeInvalid, "the body ended early or took too long")
	}
	return body, nil
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// readObject reads a body that must be one JSON object. An empty body is an
// empty object if it may be left out.
func (s *server) readObject(w http.ResponseWriter, r *http.Request, limit bodyLimit, optional bool) (*object, error) {
	body, err := s.readBody(w, r, limit)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 && optional {
		return &object{found: &[]finding{}}, nil
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, refuse(http.StatusUnsupportedMediaType, codeMedia, "the body must be JSON: send the header \"Content-Type: application/json\"")
	}
	return parseObject(body)
}

// isJSON reports whether a Content-Type says JSON or says nothing.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

// parseObject reads one JSON object strictly: no member twice at any depth, no
// invalid UTF-8, nothing behind it, nesting at most maxDepth.
func parseObject(body []byte) (*object, error) {
	one := func(kind, code, text string) error {
		return invalid([]finding{bodyFinding("", code, kind, text)})
	}
	if tooDeep(body) {
		return nil, one("json_invalid", "limit", fmt.Sprintf("nested deeper than the limit of %d levels", maxDepth))
	}
	var members map[string]jsontext.Value
	err := jsonv2.Unmarshal(body, &members)
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return nil, one("json_invalid", "syntax", syntaxText(body, e))
	}
	if err != nil || members == nil {
		return nil, one("model_attributes_type", "type", "must be a JSON object")
	}
	return &object{members: members, found: &[]finding{}}, nil
}

// syntaxText says what is wrong without repeating any of the value.
func syntaxText(body []byte, e *jsontext.SyntacticError) string {
	at := body[:min(int(e.ByteOffset), len(body))]
	line := 1 + bytes.Count(at, []byte("\n"))
	col := 1 + utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:])
	where := fmt.Sprintf("line %d, column %d", line, col)
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return fmt.Sprintf("%s: member %s appears twice", where, clip(string(e.JSONPointer)))
	case errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, io.EOF):
		return where + ": the JSON ends too early"
	case !utf8.Valid(body):
		return where + ": not valid JSON, or not UTF-8"
	default:
		return where + ": not valid JSON"
	}
}

// clip keeps a name that a caller made up short.
func clip(name string) string {
	const most = 80
	if utf8.RuneCountInString(name) <= most {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q…", string([]rune(name)[:most]))
}

// tooDeep counts brackets outside strings: enough to bound every parser behind
// it, valid JSON or not.
func tooDeep(body []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// object is a JSON object that is taken apart member by member. What is wrong
// is collected in found, shared with the objects inside it.
type object struct {
	path    string
	members map[string]jsontext.Value
	found   *[]finding
}

// maxFindings bounds what is told of one body: a large one can hold millions of
// members that nobody knows.
const maxFindings = 100

func (o *object) wrong(name, code, kind, text string) {
	if len(*o.found) >= maxFindings {
		return
	}
	*o.found = append(*o.found, bodyFinding(o.at(name), code, kind, text))
}

func (o *object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// take removes a member and gives its value; null is the same as absent.
func (o *object) take(name string) (jsontext.Value, bool) {
	v, ok := o.members[name]
	delete(o.members, name)
	return v, ok && v.Kind() != 'n'
}

// has reports whether a member is there and not taken yet, null or not.
func (o *object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// require takes down that a member is missing, or null: where null passed for one that
// was given, what it says would be left to chance.
func (o *object) require(name string) {
	if !o.given(name) {
		o.need(name)
	}
}

// given reports whether a member is there and not null. One that is null is as absent
// from then on.
func (o *object) given(name string) bool {
	if v, ok := o.members[name]; ok && v.Kind() != 'n' {
		return true
	}
	delete(o.members, name)
	return false
}

// need records that a member is missing.
func (o *object) need(name string) { o.wrong(name, "required", "missing", "is required") }

// text takes a string of minLen to maxLen characters without control
// characters but tab and line ends.
func (o *object) text(name string, minLen, maxLen int) *string {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	var s string
	if v.Kind() != '"' || jsonv2.Unmarshal(v, &s) != nil {
		o.wrong(name, "type", "string_type", "must be a string")
		return nil
	}
	switch n := utf8.RuneCountInString(s); {
	case n < minLen:
		o.wrong(name, "value", "string_too_short", fmt.Sprintf("must have at least %d character(s)", minLen))
		return nil
	case n > maxLen:
		o.wrong(name, "limit", "string_too_long", fmt.Sprintf("must have at most %d characters", maxLen))
		return nil
	case strings.ContainsFunc(s, isControl):
		o.wrong(name, "value", "value_error", "must not contain control characters")
		return nil
	}
	return &s
}

// isControl reports whether r is a control character other than tab and line ends.
func isControl(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f }

// word takes one of a few words, in any case, and gives it in lower case.
func (o *object) word(name string, words ...string) *string {
	v := o.text(name, 0, 1000)
	if v == nil {
		return nil
	}
	low := strings.ToLower(*v)
	if !slices.Contains(words, low) {
		o.wrong(name, "value", "enum", fmt.Sprintf("must be one of: %s", strings.Join(words, ", ")))
		return nil
	}
	return &low
}

// integer takes a whole number; 30000.0 is one.
func (o *object) integer(name string, least, most int64) *int64 {
	f := o.number(name, float64(least), float64(most))
	if f == nil {
		return nil
	}
	n := int64(*f)
	if float64(n) != *f {
		o.wrong(name, "type", "int_type", "must be a whole number")
		return nil
	}
	return &n
}

func (o *object) number(name string, least, most float64) *float64 {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	var f float64
	if v.Kind() != '0' || jsonv2.Unmarshal(v, &f) != nil {
		o.wrong(name, "type", "int_type", "must be a number")
		return nil
	}
	if f < least {
		o.wrong(name, "value", "greater_than_equal", "must be at least "+plain(least))
		return nil
	}
	if f > most {
		o.wrong(name, "value", "less_than_equal", "must be at most "+plain(most))
		return nil
	}
	return &f
}

// plain writes a number in digits, however large it is.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (o *object) boolean(name string) *bool {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	if k := v.Kind(); k != 't' && k != 'f' {
		o.wrong(name, "type", "bool_type", "must be true or false")
		return nil
	}
	b := v.Kind() == 't'
	return &b
}

// object takes an object apart from its own.
func (o *object) object(name string) *object {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	in := &object{path: o.at(name), found: o.found}
	if v.Kind() != '{' || jsonv2.Unmarshal(v, &in.members) != nil {
		o.wrong(name, "type", "dict_type", "must be an object")
		return nil
	}
	return in
}

// value takes any JSON value as it is, up to the limit.
func (o *object) value(name string, limit bodyLimit) json.RawMessage {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	if int64(len(v)) > limit.bytes {
		o.wrong(name, "limit", "too_long", fmt.Sprintf("is larger than the limit %s of %s", limit.name, sizeText(limit.bytes)))
		return nil
	}
	return json.RawMessage(v)
}

// labels takes an object of strings: at most 32 of at most 256 characters.
func (o *object) labels(name string) map[string]string {
	in := o.object(name)
	if in == nil {
		return nil
	}
	if len(in.members) > 32 {
		o.wrong(name, "limit", "too_long", "must have at most 32 labels")
		return nil
	}
	out := map[string]string{}
	for _, key := range sortedKeys(in.members) {
		if key == "" || utf8.RuneCountInString(key) > 256 {
			o.wrong(name, "limit", "string_too_long", "label names have 1 to 256 characters")
			continue
		}
		if v := in.text(key, 0, 256); v != nil {
			out[key] = *v
		}
	}
	return out
}

// done gives the refusal for all that was wrong; with strict also for members
// that nobody took.
func (o *object) done(strict bool) error {
	if strict {
		o.unknown()
	}
	if len(*o.found) == 0 {
		return nil
	}
	return invalid(*o.found)
}

// unknown notes the members that nobody took.
func (o *object) unknown() {
	for _, name := range sortedKeys(o.members) {
		if len(*o.found) >= maxFindings {
			return
		}
		short := strings.Trim(clip(name), `"`)
		o.wrong(short, "unknown_member", "extra_forbidden", "unknown member "+clip(name))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
