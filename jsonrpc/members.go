package jsonrpc

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A shape is what checkMembers has to know about a type of Go: which JSON
// values it takes and the exact names of its members. Nil takes everything.
type shape struct {
	typ    reflect.Type
	takes  jsonKind
	fields []shapeField   // of a struct, in the order of declaration
	byName map[string]int // index into fields
	elem   *shape         // of an array, a slice or a map; of an interface itself
	key    reflect.Type   // of a map, where names are integers; else nil
}

type shapeField struct {
	name  string
	shape *shape
}

// jsonKind is a set of kinds of JSON values.
type jsonKind uint8

const (
	jsonString jsonKind = 1 << iota
	jsonNumber
	jsonBool
	jsonObject
	jsonArray
	jsonAny = 1<<iota - 1
)

// newShape examines a type.
func newShape(t reflect.Type) *shape {
	return buildShape(t, map[reflect.Type]*shape{})
}

// buildShape builds the shape of a type; built holds those at hand, since
// types may contain themselves.
func buildShape(t reflect.Type, built map[reflect.Type]*shape) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := built[t]; ok {
		return s
	}
	s := &shape{typ: t, takes: jsonAny}
	built[t] = s
	if hasOwnDecoder(t) || t == reflect.TypeFor[json.Number]() {
		return s
	}
	switch t.Kind() {
	case reflect.String:
		s.takes = jsonString
	case reflect.Bool:
		s.takes = jsonBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64:
		s.takes = jsonNumber
	case reflect.Slice, reflect.Array:
		s.takes = jsonArray
		s.elem = buildShape(t.Elem(), built)
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			s.takes |= jsonString // bytes in base64
		}
	case reflect.Interface:
		s.elem = s
	case reflect.Map:
		s.takes = jsonObject
		s.elem = buildShape(t.Elem(), built)
		if key := t.Key(); isInteger(key.Kind()) && !hasOwnDecoder(key) {
			s.key = key
		}
	case reflect.Struct:
		s.takes = jsonObject
		s.fields = structFields(t, built)
		s.byName = make(map[string]int, len(s.fields))
		for i, f := range s.fields {
			s.byName[f.name] = i
		}
	}
	return s
}

// hasOwnDecoder says whether encoding/json leaves values of the type to their
// own methods.
func hasOwnDecoder(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// A candidate is a field of a struct or of one embedded in it.
type candidate struct {
	name   string
	depth  int
	tagged bool
	text   bool // by the option string the value is inside a JSON string
	typ    reflect.Type
}

// structFields returns the members that encoding/json sees in a struct. Of
// several with the same name the least deeply embedded counts, then the one
// with a tag; if that leaves more than one, none does.
func structFields(t reflect.Type, built map[reflect.Type]*shape) []shapeField {
	var all []candidate
	collectFields(t, nil, &all)
	best := make(map[string]candidate, len(all))
	clash := make(map[string]bool)
	for _, c := range all {
		b, ok := best[c.name]
		switch {
		case !ok || c.depth < b.depth || c.depth == b.depth && c.tagged && !b.tagged:
			best[c.name] = c
			clash[c.name] = false
		case c.depth == b.depth && c.tagged == b.tagged:
			clash[c.name] = true
		}
	}
	var fields []shapeField
	for _, c := range all {
		if b, ok := best[c.name]; ok && b == c && !clash[c.name] {
			f := shapeField{name: c.name}
			if !c.text {
				f.shape = buildShape(c.typ, built)
			}
			fields = append(fields, f)
			delete(best, c.name)
		}
	}
	return fields
}

// collectFields appends the fields of t, which is reached by way of the
// structs in path.
func collectFields(t reflect.Type, path []reflect.Type, all *[]candidate) {
	if slices.Contains(path, t) { // it contains itself, and the outer one counts
		return
	}
	path = append(path, t)
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer && inner.Name() == "" {
			inner = inner.Elem()
		}
		isStruct := inner.Kind() == reflect.Struct
		hidden := !f.IsExported() && (!f.Anonymous || !isStruct)
		if tag == "-" || hidden {
			continue
		}
		if !validTag(name) {
			name = ""
		}
		if f.Anonymous && name == "" && isStruct {
			collectFields(inner, path, all)
			continue
		}
		c := candidate{name: name, depth: len(path), tagged: name != "", typ: f.Type}
		if name == "" {
			c.name = f.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			c.text = c.text || option == "string" && mayBeText(inner.Kind())
		}
		*all = append(*all, c)
	}
}

// mayBeText says whether encoding/json heeds the option string for a field of this kind.
func mayBeText(kind reflect.Kind) bool {
	switch kind {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64:
		return true
	default:
		return isInteger(kind)
	}
}

func isInteger(kind reflect.Kind) bool { return reflect.Int <= kind && kind <= reflect.Uintptr }

// validTag says whether encoding/json takes a name from a tag.
func validTag(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// expected describes what a type takes, for people.
func expected(t reflect.Type) string {
	if t == nil {
		return "something else"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.Number]() {
		return "a number"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return "an integer from 0 on of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Float32, reflect.Float64:
		return "a number of at most " + strconv.Itoa(t.Bits()) + " bits"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string with bytes in base64"
		}
		return "an array"
	case reflect.Array:
		return "an array"
	default:
		return "a " + t.String()
	}
}

// checkMembers checks a JSON text in the light of the type that it will be
// decoded into: grammar and UTF-8 as checkValue does, no duplicate members
// anywhere, the kinds of values, and the names of members. A nil shape takes
// any value. It says whether a number goes into an interface, where
// encoding/json by itself would make it a float64.
func checkMembers(text []byte, s *shape) (openNumbers bool, err error) {
	c := memberCheck{b: text}
	end := c.value(skipSpace(text, 0), s, maxRecursion)
	if c.fault != nil {
		return false, c.fault
	}
	if end < 0 || skipSpace(text, end) != len(text) {
		return false, &DecodeError{Expected: "valid JSON", Err: checkValue(text, maxRecursion)}
	}
	return c.openNumbers, nil
}

// findNumber finds the first number in a valid text that its place does not hold, which
// encoding/json reports with the name of the array or the map around it; nil: there is
// none.
func findNumber(text []byte, s *shape) *DecodeError {
	c := memberCheck{b: text, ranges: true}
	c.value(skipSpace(text, 0), s, maxRecursion)
	return c.fault
}

// fewMembers is how many members are compared one with another; in larger
// objects a map finds duplicates.
const fewMembers = 16

type memberCheck struct {
	b           []byte
	fault       *DecodeError
	openNumbers bool
	ranges      bool // look whether numbers fit, too
}

// value checks the value at i and returns where it ends, or a negative number.
func (c *memberCheck) value(i int, s *shape, depth int) int {
	if i >= len(c.b) {
		return malformed
	}
	if s != nil && s.takes != jsonAny && !s.accepts(c.b[i]) {
		c.fault = &DecodeError{Expected: expected(s.typ)}
		return malformed
	}
	switch c.b[i] {
	case '{':
		if depth <= 0 {
			return deep
		}
		return c.object(i+1, s, depth-1)
	case '[':
		if depth <= 0 {
			return deep
		}
		return c.array(i+1, s, depth-1)
	case '"', 't', 'f', 'n':
	default:
		c.openNumbers = c.openNumbers || s != nil && s.elem == s
	}
	end := skipValue(c.b, i, 0)
	if c.ranges && s != nil && s.takes == jsonNumber && c.b[i] != 'n' && !holds(s.typ, string(c.b[i:end])) {
		c.fault = &DecodeError{Expected: expected(s.typ)}
		return malformed
	}
	return end
}

// holds says whether a value of a type for numbers can be the one with this text.
func holds(t reflect.Type, text string) bool {
	switch kind := t.Kind(); {
	case kind == reflect.Float32 || kind == reflect.Float64:
		_, err := strconv.ParseFloat(text, t.Bits())
		return err == nil
	case kind <= reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && !t.OverflowInt(n)
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		return err == nil && !t.OverflowUint(n)
	}
}

// accepts says whether the type takes a value that begins with b. Null it
// always takes, as encoding/json does. That b begins no value at all is not the
// type's fault.
func (s *shape) accepts(b byte) bool {
	switch b {
	case '"':
		return s.takes&jsonString != 0
	case '{':
		return s.takes&jsonObject != 0
	case '[':
		return s.takes&jsonArray != 0
	case 't', 'f':
		return s.takes&jsonBool != 0
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.takes&jsonNumber != 0
	default:
		return true
	}
}

func (c *memberCheck) array(i int, s *shape, depth int) int {
	var elem *shape
	if s != nil {
		elem = s.elem
	}
	i = skipSpace(c.b, i)
	if i < len(c.b) && c.b[i] == ']' {
		return i + 1
	}
	for n := 0; ; n++ {
		if i = c.value(i, elem, depth); i < 0 {
			c.within("[" + strconv.Itoa(n) + "]")
			return i
		}
		if s.isFull(n) {
			c.fault = &DecodeError{Member: "[" + strconv.Itoa(n) + "]", Expected: "absent, there are " + strconv.Itoa(n) + " elements at most"}
			return malformed
		}
		if i = skipSpace(c.b, i); i >= len(c.b) {
			return malformed
		}
		switch c.b[i] {
		case ',':
			i = skipSpace(c.b, i+1)
		case ']':
			return i + 1
		default:
			return malformed
		}
	}
}

// isFull says whether n elements are all that an array of Go holds.
func (s *shape) isFull(n int) bool {
	return s != nil && s.takes == jsonArray && s.typ.Kind() == reflect.Array && n >= s.typ.Len()
}

// within puts the name of what contains the fault before its path.
func (c *memberCheck) within(name string) {
	switch {
	case c.fault == nil:
	case c.fault.Member == "" || c.fault.Member[0] == '[':
		c.fault.Member = name + c.fault.Member
	default:
		c.fault.Member = name + "." + c.fault.Member
	}
}

func (c *memberCheck) object(i int, s *shape, depth int) int {
	var names nameSet
	i = skipSpace(c.b, i)
	if i < len(c.b) && c.b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(c.b) || c.b[i] != '"' {
			return malformed
		}
		key := i + 1
		if i = skipString(c.b, key); i < 0 {
			return i
		}
		name := c.b[key : i-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = unescape(nil, name)
		}
		elem, what := s.member(name)
		if !names.add(name) {
			what = "there only once"
		}
		if what != "" {
			c.fault = &DecodeError{Member: shorten(string(name), longestName), Expected: what}
			return malformed
		}
		if i = skipSpace(c.b, i); i >= len(c.b) || c.b[i] != ':' {
			return malformed
		}
		if i = c.value(skipSpace(c.b, i+1), elem, depth); i < 0 {
			if c.fault != nil {
				c.within(shorten(string(name), longestName))
			}
			return i
		}
		if i = skipSpace(c.b, i); i >= len(c.b) {
			return malformed
		}
		switch c.b[i] {
		case ',':
			i = skipSpace(c.b, i+1)
		case '}':
			return i + 1
		default:
			return malformed
		}
	}
}

// member returns the shape of a member, or what is wrong with its name.
func (s *shape) member(name []byte) (elem *shape, what string) {
	if s == nil || s.byName == nil {
		if s != nil {
			elem = s.elem
			if s.key != nil && !holds(s.key, string(name)) {
				what = "named by " + expected(s.key)
			}
		}
		return elem, what
	}
	if i, ok := s.byName[string(name)]; ok {
		return s.fields[i].shape, ""
	}
	for _, f := range s.fields {
		if strings.EqualFold(f.name, string(name)) {
			return nil, "spelled " + f.name
		}
	}
	return nil, ""
}

// A nameSet holds the names of one object's members.
type nameSet struct {
	few  [fewMembers][]byte
	n    int
	many map[string]struct{}
}

// add adds a name, unless it is there already.
func (s *nameSet) add(name []byte) bool {
	if s.n < fewMembers {
		for _, other := range s.few[:s.n] {
			if string(other) == string(name) {
				return false
			}
		}
		s.few[s.n] = name
		s.n++
		return true
	}
	if s.many == nil {
		s.many = make(map[string]struct{}, 4*fewMembers)
		for _, other := range s.few {
			s.many[string(other)] = struct{}{}
		}
	}
	if _, ok := s.many[string(name)]; ok {
		return false
	}
	s.many[string(name)] = struct{}{}
	return true
}
