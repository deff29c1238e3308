package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type address struct {
	Street string `json:"street"`
	Zip    *int16 `json:"zip,omitempty"`
}

type base struct {
	Hidden string `json:"-"` // what is behind it is checked all the same
	ID     string `json:"id"`
	Shadow int    `json:"shadow"`
}

type person struct {
	base
	Name    string             `json:"name"`
	Tags    []string           `json:"tags"`
	Home    address            `json:"home"`
	Others  map[string]address `json:"others"`
	Friends []*person          `json:"friends"`
	Any     any                `json:"any"`
	When    time.Time          `json:"when"`
	Key     ID                 `json:"key"`
	Raw     json.RawMessage    `json:"raw"`
	Bytes   []byte             `json:"bytes"`
	Count   uint8              `json:"count"`
	Quoted  int                `json:"quoted,string"`
	Shadow  string             `json:"shadow"`
	Yes     bool               `json:"yes"`
	Plain   float32
	Given   struct {
		Home  address     `json:"home,string"` //nolint:staticcheck // encoding/json ignores the option, and so must we
		Open  []any       `json:"open,string"` //nolint:staticcheck // see above
		Whole *bool       `json:"whole,string"`
		Rest  []float32   `json:"rest"`
		Share ****float64 `json:"share,string"` //nolint:staticcheck // see above; of pointers one is looked through
	} `json:"given"`
	Limits map[int8]uint      `json:"limits"`
	Sizes  map[uint16]address `json:"sizes"`
	Keys   map[textKey]int    `json:"keys"`
	Odd    oddNumber          `json:"odd"`
	Exact  json.Number        `json:"exact"`
}

// An oddNumber is an integer that takes every value.
type oddNumber int

func (*oddNumber) UnmarshalJSON([]byte) error { return nil }

// A textKey is an integer that reads itself.
type textKey int

func (k *textKey) UnmarshalText(text []byte) error {
	*k = textKey(len(text))
	return nil
}

// TestStrictDecode holds the strict codec to its promises (RPC-5, RPC-25):
// exact names, no duplicates, kinds, at any depth, with the path to what is
// wrong.
func TestStrictDecode(t *testing.T) {
	tests := []struct {
		text, member, expected string // expected empty: the text is accepted
	}{
		{`{"name":"x","tags":["a"],"home":{"street":"s","zip":5}}`, "", ""},
		{`{}`, "", ""},
		{`null`, "", ""},
		{`{"name":null,"tags":null,"home":null,"others":null,"count":null}`, "", ""},
		{`{"unknown":{"Name":1,"home":2}}`, "", ""},
		{`{"n\u0061me":"x"}`, "", ""},
		{`{"id":"x","shadow":"outer"}`, "", ""},
		{`{"Hidden":5,"hidden":6,"private":7}`, "", ""},
		{`{"any":{"Name":1,"NAME":2}}`, "", ""},
		{`{"raw":{"Name":1},"key":1.50,"when":"2026-01-02T03:04:05Z","bytes":"AAE=","quoted":"7","Plain":1e3}`, "", ""},
		{`{"others":{"Street":{"street":"x"},"street":{}}}`, "", ""},

		{`{"given":{"home":{"zip":1},"whole":"true","share":1.5},"limits":{"-128":1,"127":2},"sizes":{"0":{},"65535":{}},"keys":{"x":1}}`, "", ""},
		{`{"exact":1E400}`, "", ""},

		{" { \"name\" : \"x\" ,\n\"tags\" : [ \"a\" ,\t\"b\" ] , \"home\" : { } , \"friends\" : [ ] } ", "", ""},
		{`{"any":` + strings.Repeat("[", maxRecursion-1) + strings.Repeat("]", maxRecursion-1) + `}`, "", ""},

		{`{"Name":"x"}`, "Name", "spelled name"},
		{`{"name":"x","NAME":"y"}`, "NAME", "spelled name"},
		{`{"plain":1}`, "plain", "spelled Plain"},
		{`{"home":{"Street":"x"}}`, "home.Street", "spelled street"},
		{`{"others":{"a":{"ZIP":1}}}`, "others.a.ZIP", "spelled zip"},
		{`{"friends":[{},{"friends":[{"Id":"x"}]}]}`, "friends[1].friends[0].Id", "spelled id"},
		{"{\"\u212Aey\":1}", "\u212Aey", "spelled key"},

		{`{"name":"x","name":"x"}`, "name", "there only once"},
		{`{"name":"x","n\u0061me":"x"}`, "name", "there only once"},
		{`{"unknown":[{"a":1,"a":2}]}`, "unknown[0].a", "there only once"},
		{`{"any":{"x":{"y":1,"z":2,"y":1}}}`, "any.x.y", "there only once"},
		{`{"raw":{"x":1,"x":1}}`, "raw.x", "there only once"},
		{`{"others":{"a":{},"a":{}}}`, "others.a", "there only once"},
		{`{"unknown":{` + manyMembers(100) + `,"m7":1}}`, "unknown.m7", "there only once"},

		{`[]`, "", "an object"},
		{`"x"`, "", "an object"},
		{`{"name":5}`, "name", "a string"},
		{`{"name":{"a":1}}`, "name", "a string"},
		{`{"tags":["a",5]}`, "tags[1]", "a string"},
		{`{"tags":"a"}`, "tags", "an array"},
		{`{"tags":{"home":1}}`, "tags", "an array"},
		{`{"home":[]}`, "home", "an object"},
		{`{"home":{"zip":"x"}}`, "home.zip", "an integer of at most 16 bits"},
		{`{"home":{"zip":40000}}`, "home.zip", "an integer of at most 16 bits"},
		{`{"home":{"zip":1.5}}`, "home.zip", "an integer of at most 16 bits"},
		{`{"count":-1}`, "count", "an integer from 0 on of at most 8 bits"},
		{`{"Plain":"x"}`, "Plain", "a number of at most 32 bits"},
		{`{"yes":1}`, "yes", "true or false"},
		{`{"bytes":{}}`, "bytes", "a string with bytes in base64"},
		{`{"others":{"a":5}}`, "others.a", "an object"},
		{`{"given":{"home":{"Zip":1}}}`, "given.home.Zip", "spelled zip"},
		{`{"given":{"home":"x"}}`, "given.home", "an object"},
		{`{"given":{"share":"1.5"}}`, "given.share", "a number of at most 64 bits"},
		{`{"limits":{"x":1}}`, "limits.x", "named by an integer of at most 8 bits"},
		{`{"limits":{"null":1}}`, "limits.null", "named by an integer of at most 8 bits"},
		{`{"limits":{"128":1}}`, "limits.128", "named by an integer of at most 8 bits"},
		{`{"limits":{"1":-1}}`, "limits.1", "an integer from 0 on of at most 64 bits"},
		{`{"sizes":{"-1":{}}}`, "sizes.-1", "named by an integer from 0 on of at most 16 bits"},
		{`{"sizes":{"65536":{}}}`, "sizes.65536", "named by an integer from 0 on of at most 16 bits"},
		{`{"sizes":{"1":{"ZIP":1}}}`, "sizes.1.ZIP", "spelled zip"},
		{`{"Plain":1e39}`, "Plain", "a number of at most 32 bits"},
		{`{"given":{"rest":[1,1e39]}}`, "given.rest[1]", "a number of at most 32 bits"},
		{`{"bytes":[0,255,256]}`, "bytes[2]", "an integer from 0 on of at most 8 bits"},
		{`{"odd":1.5,"given":{"rest":[null]},"count":300}`, "count", "an integer from 0 on of at most 8 bits"}, // what reads itself takes what it likes
		{`{"exact":true}`, "exact", "a number"},
		{`{"name":"x"`, "", "valid JSON"},
		{"{\"name\":\"\xff\"}", "", "valid JSON"},
		{`{"name":"x"} {}`, "", "valid JSON"},
		{`{"any":[[[}`, "", "valid JSON"},
		{`{"any":` + strings.Repeat("[", maxRecursion) + strings.Repeat("]", maxRecursion) + `}`, "", "valid JSON"},
		{`{"any":` + strings.Repeat("[", maxRecursion-1) + `{}` + strings.Repeat("]", maxRecursion-1) + `}`, "", "valid JSON"},
		{``, "", "valid JSON"},
		{`{`, "", "valid JSON"},
		{`{name:"x"}`, "", "valid JSON"},
		{`{"name`, "", "valid JSON"},
		{`{"name"`, "", "valid JSON"},
		{`{"name""x"}`, "", "valid JSON"},
		{`{"name":`, "", "valid JSON"},
		{`{"name":"x" "tags":[]}`, "", "valid JSON"},
		{`{"name":"x",}`, "", "valid JSON"},
		{`{"tags":["a" "b"]}`, "", "valid JSON"},
		{`{"tags":["a",]}`, "", "valid JSON"},
		{`{"tags":["a"`, "", "valid JSON"},
		{`{"tags":[`, "", "valid JSON"},
		{`{"name":"x"]`, "", "valid JSON"},
		{`{"name":}`, "", "valid JSON"},
		{`{"name":x}`, "", "valid JSON"},
	}
	codec := StrictCodec()
	for _, tc := range tests {
		var p person
		err := codec.Decode([]byte(tc.text), &p)
		var d *DecodeError
		switch {
		case tc.expected == "":
			if err != nil {
				t.Errorf("%s: %v", tc.text, err)
			}
			reference := person{}
			if json.Unmarshal([]byte(tc.text), &reference); p.Name != reference.Name || p.ID != reference.ID {
				t.Errorf("%s: %+v, want %+v", tc.text, p, reference)
			}
		case !errors.As(err, &d) || d.Member != tc.member || d.Expected != tc.expected:
			t.Errorf("%s:\n got %v\nwant %s must be %s", tc.text, err, tc.member, tc.expected)
		}
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`"m` + IntegerID(int64(i)).String() + `":0,`)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// TestStrictDecodeFields compares the members that the strict codec sees in a
// type with those that encoding/json writes for it.
func TestStrictDecodeFields(t *testing.T) {
	type Deep struct{ A, B, C int }
	type Left struct {
		Deep
		B int
		X int
	}
	type Right struct {
		B int
		X int
		Y int `json:"y"`
	}
	type tagged struct {
		Y int
		Z int `json:"Y"`
	}
	type loop struct {
		Next *loop `json:"next"`
		L    int
	}
	type EmbedsItself struct {
		*EmbedsItself
		M int
	}
	type inner struct{ M int }
	type unexported struct {
		inner `json:"in"`
		io    error
	}
	type named struct {
		Left `json:"left"`
		*Right
		error
	}
	for _, v := range []any{
		Left{},
		struct {
			Left
			Right
		}{},
		tagged{},
		loop{},
		EmbedsItself{},
		named{Right: &Right{}},
		person{},
		struct {
			Left
			*Right
			Y string
		}{Right: &Right{}},
		oddTags(),
		unexported{inner: inner{5}, io: nil},
	} {
		s := StrictCodec().(*strictCodec).shape(reflect.TypeOf(v))
		got := make(map[string]bool)
		for _, f := range s.fields {
			got[f.name] = true
		}
		want := make(map[string]bool)
		for name := range membersOf(t, v) {
			want[name] = true
		}
		delete(got, "zip")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T:\n%s", v, diff)
		}
	}
}

// TestStrictDecodeNumbers keeps integers beyond 2^53 wherever an interface
// takes them.
func TestStrictDecodeNumbers(t *testing.T) {
	const n = "9007199254740993"
	var v any
	var m map[string]any
	var s struct{ In struct{ V []any } }
	var typed struct{ N int64 }
	var own struct{ V json.RawMessage }
	var given struct {
		W any `json:",string"` //nolint:staticcheck // it is of no use there, as is tested
	}
	codec := StrictCodec()
	for text, target := range map[string]any{
		`{"W":` + n + `}`: &given,
		`[` + n + `]`:     &v, `{"a":` + n + `}`: &m, `{"In":{"V":[` + n + `]}}`: &s, `{"N":` + n + `}`: &typed, `{"V":` + n + `}`: &own,
	} {
		if err := codec.Decode([]byte(text), target); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		back, err := codec.Append(nil, target)
		if err != nil || string(back) != text {
			t.Errorf("%s came back as %s (%v)", text, back, err)
		}
	}
	for target, want := range map[any]string{
		new([2]int): "an array", new(struct{}): "an object", new(**int): "an integer of at most 64 bits",
		new(chan int): "a chan int", new(complex64): "a complex64", new(uintptr): "an integer from 0 on of at most 64 bits",
	} {
		for _, c := range []Codec{codec, LenientCodec()} {
			fault, ok := errors.AsType[*DecodeError](c.Decode([]byte(`"x"`), target))
			if !ok || fault.Expected != want {
				t.Errorf("%T, %T: %+v", c, target, fault)
			}
		}
	}
	if _, ok := m["a"].(json.Number); !ok {
		t.Errorf("%T in an interface", m["a"])
	}
	var lenient any
	if err := LenientCodec().Decode([]byte(`{"a":1,"a":2}`), &lenient); err != nil || lenient.(map[string]any)["a"] != 2.0 {
		t.Errorf("the lenient codec: %v, %v", lenient, err)
	}
}

// TestStrictDecodeArrays: no element is dropped because an array of Go has no room for
// it. Arrays that read themselves take what they like.
func TestStrictDecodeArrays(t *testing.T) {
	for _, c := range []struct {
		into             any
		text             string
		member, expected string // expected empty: the text is accepted
	}{
		{new([2]int), `[1,2]`, "", ""},
		{new([2]int), `[1]`, "", ""},
		{new([2]int), `[]`, "", ""},
		{new([2]int), `null`, "", ""},
		{new([2]int), `[1,2,3]`, "[2]", "absent, there are 2 elements at most"},
		{new([2]int), `[1,2,null]`, "[2]", "absent, there are 2 elements at most"},
		{new([0]int), `[]`, "", ""},
		{new([0]int), `[{}]`, "[0]", "an integer of at most 64 bits"},
		{new([0]any), `[{}]`, "[0]", "absent, there are 0 elements at most"},
		{new(*[1]string), `["a","b"]`, "[1]", "absent, there are 1 elements at most"},
		{new(struct{ A map[string][][1]bool }), `{"A":{"x":[[true],[true,false]]}}`, "A.x[1][1]", "absent, there are 1 elements at most"},
		{new([]int), `[1,2,3]`, "", ""},
		{new(oddArray), `[1,2,3]`, "", ""},
		{new([1]string), `["a",]`, "", "valid JSON"},
	} {
		err := StrictCodec().Decode([]byte(c.text), c.into)
		d, ok := errors.AsType[*DecodeError](err)
		if c.expected == "" && err != nil || c.expected != "" && (!ok || d.Member != c.member || d.Expected != c.expected) {
			t.Errorf("%T, %s: %v", c.into, c.text, err)
		}
		if lenient := LenientCodec().Decode([]byte(c.text), c.into); strings.HasPrefix(c.expected, "absent") && lenient != nil {
			t.Errorf("%T, %s by the lenient codec: %v", c.into, c.text, lenient)
		}
	}
}

// An oddArray reads itself.
type oddArray [1]int

func (*oddArray) UnmarshalJSON([]byte) error { return nil }

// TestTypedArray: params beyond an array of Go are refused, as those beyond a struct are.
func TestTypedArray(t *testing.T) {
	var mux Mux
	mux.Register("area", Typed(func(_ context.Context, p [2]int) (int, error) { return p[0] * p[1], nil }))
	r := NewResponder(Config{Handler: &mux})
	defer r.Close()
	got, err := r.Respond(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"area","params":[2,3,4]}`), nil)
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: the member [2] must be absent, there are 2 elements at most",` +
		`"data":{"member":"[2]","expected":"absent, there are 2 elements at most"}}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// TestStrictDecodeTarget refuses what cannot be decoded into, and fills raw
// messages without a copy too many.
func TestStrictDecodeTarget(t *testing.T) {
	codec := StrictCodec()
	for _, v := range []any{nil, 5, person{}, (*person)(nil)} {
		if err := codec.Decode([]byte(`{}`), v); err == nil {
			t.Errorf("decoded into %T", v)
		}
	}
	raw := make(json.RawMessage, 0, 64)
	text := []byte(`{"a":[1]}`)
	if n := testing.AllocsPerRun(100, func() { codec.Decode(text, &raw) }); n != 0 || string(raw) != string(text) {
		t.Errorf("%v allocations for %s", n, raw)
	}
	if err := codec.Decode([]byte(`{"a":1,"a":2}`), &raw); err == nil {
		t.Error("duplicates in a raw message")
	}
}

// TestAppend holds encoding to its promises: no HTML escapes, no line breaks,
// nothing invalid.
func TestAppend(t *testing.T) {
	tests := []struct {
		v    any
		want string // empty: refused
	}{
		{nil, `null`},
		{"<a&b>\u2028", `"<a&b>\u2028"`},
		{person{Name: "x"}.Tags, `null`},
		{map[string]any{"b": 1, "a": []int{}}, `{"a":[],"b":1}`},
		{json.RawMessage("{\n\"a\": \"<\"}"), `{ "a": "<"}`},
		{json.RawMessage(nil), `null`},
		{struct{ R json.RawMessage }{json.RawMessage("[1,\n 2]")}, `{"R":[1,2]}`},
		{&Error{Code: 1}, `{"Code":1,"Message":"","Data":null}`},
		{IntegerID(5), `5`},
		{"a\xff", "\"a\uFFFD\""},
		{json.RawMessage(``), ``},
		{json.RawMessage(`{"a":`), ``},
		{json.RawMessage("\"\xff\""), ``},
		{struct{ R json.RawMessage }{json.RawMessage("\"\xff\"")}, ``},
		{struct{ R json.RawMessage }{json.RawMessage(`"\ud83d"`)}, ``},
		{math.NaN(), ``},
		{make(chan int), ``},
	}
	for _, codec := range []Codec{StrictCodec(), LenientCodec()} {
		if _, ok := codec.(ownCodec); !ok {
			t.Errorf("what %T appends is checked twice", codec)
		}
		for _, tc := range tests {
			got, err := codec.Append([]byte("before "), tc.v)
			got = []byte(strings.Replace(string(got), "\\ufffd", "\uFFFD", 1))
			if want := "before " + tc.want; tc.want != "" && (err != nil || string(got) != want) || tc.want == "" && err == nil {
				t.Errorf("%T %v: %s, %v; want %s", codec, tc.v, got, err, tc.want)
			}
		}
	}
}

// FuzzStrictDecode looks for texts that the strict codec takes and
// encoding/json reads differently by exact names.
func FuzzStrictDecode(f *testing.F) {
	f.Add([]byte(`{"name":"x","home":{"street":"s","zip":5},"friends":[{"id":"y"}],"any":[1,{"a":2}]}`))
	f.Add([]byte(`{"Name":"x"}`))
	f.Add([]byte(`{"unknown":{"name":1},"tags":["a","b"],"Plain":1e3,"quoted":"5"}`))
	codec := StrictCodec()
	f.Fuzz(func(t *testing.T, text []byte) {
		var got person
		if codec.Decode(text, &got) != nil {
			return
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(text, &exact); err != nil {
			t.Fatal(err)
		}
		var name string
		json.Unmarshal(exact["name"], &name)
		if got.Name != name {
			t.Errorf("%s: name %q, want %q", text, got.Name, name)
		}
	})
}

func BenchmarkStrictDecode(b *testing.B) {
	text := []byte(`{"name":"Ada","tags":["alpha","beta"],"home":{"street":"Main Street 1","zip":123},"id":"3f2a9c70","count":7}`)
	codec := StrictCodec()
	for name, decode := range map[string]func([]byte, any) error{"strict": codec.Decode, "encoding-json": json.Unmarshal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var p person
				if err := decode(text, &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// membersOf returns the members that encoding/json writes for v.
func membersOf(t *testing.T, v any) map[string]json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	return members
}

// oddTags returns a struct whose tags are legal for encoding/json and odd.
func oddTags() any {
	var fields []reflect.StructField
	for i, tag := range []string{`a,b`, `,omitempty`, `-,`, `é ü`, `\"bad\"`, `a\\b`, `a,`} {
		fields = append(fields, reflect.StructField{
			Name: string(rune('A' + i)), Type: reflect.TypeFor[bool](), Tag: reflect.StructTag(`json:"` + tag + `"`),
		})
	}
	v := reflect.New(reflect.StructOf(fields)).Elem()
	v.Field(1).SetBool(true)
	return v.Interface()
}

// TestStrictDecodeDominance gives a name that two fields want to the tagged
// one, as encoding/json does.
func TestStrictDecodeDominance(t *testing.T) {
	type both struct {
		Y string
		Z int `json:"Y"`
	}
	var v both
	if err := StrictCodec().Decode([]byte(`{"Y":5}`), &v); err != nil || v.Z != 5 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := StrictCodec().Decode([]byte(`{"Y":"x"}`), &v); err == nil {
		t.Error("a string for the number")
	}
}
