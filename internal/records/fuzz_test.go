package records_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parley-project/parley/internal/records"
)

func FuzzDecodeTask(f *testing.F) {
	value, err := task().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte(`{"run_id":"r","task_id":"t","correlation_id":"c","agent_name":"a","input_data":{"x":[NaN,-Infinity,1e5,"\ud800\u0000"]}`))
	f.Add([]byte("{\"run_id\":\"\xff\\u00e9\\ud83d\\ude00\"}"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := records.DecodeTask(value)
		if err != nil {
			return
		}
		if !json.Valid(value) {
			t.Fatalf("taken, and no JSON: %q", value)
		}
		if !r.Answerable() || !json.Valid(r.Input) {
			t.Fatalf("taken, but of no use: %+v", r)
		}
		var plain struct {
			R string `json:"run_id"`
		}
		if json.Unmarshal(value, &plain) == nil && plain.R != r.RunID && !bytes.Contains(value, []byte("un_")) {
			t.Fatalf("run %q, and encoding/json reads %q", r.RunID, plain.R)
		}
		r.At = at
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("read, and cannot be written: %v", err)
		}
		back, err := records.DecodeTask(again)
		if err != nil || back.RunID != r.RunID || back.TaskID != r.TaskID || back.AgentName != r.AgentName || back.CorrelationID != r.CorrelationID {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
	})
}

func FuzzEncodeOutput(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e3,"\u0000\ud800é😀",null,true,{}]}`), "text")
	f.Add([]byte(`1e999`), "\x00\xff")
	f.Add([]byte(`[[[]]]`), "")
	f.Fuzz(func(t *testing.T, output []byte, id string) {
		r := result("SUCCESS", string(output), "")
		if id != "" {
			r.TaskID = id
		}
		value, err := r.Encode()
		if err != nil {
			if value != nil {
				t.Fatal("a record beside an error")
			}
			if json.Valid(output) && utf8.ValidString(id) && !strings.Contains(id, "\x00") && len(id) < 1000 && !strings.Contains(err.Error(), "nested") {
				t.Fatalf("%q refused: %v", output, err)
			}
			return
		}
		for _, c := range value {
			if c < ' ' || c > '~' {
				t.Fatalf("%q is not printable ASCII", value)
			}
		}
		if bytes.Contains(value, []byte(`\u0000`)) && !bytes.Contains(value, []byte(`\\u0000`)) {
			t.Fatalf("U+0000 in %q", value)
		}
		if !json.Valid(value) {
			t.Fatalf("not JSON: %q", value)
		}
		back, err := records.DecodeResult(value)
		if err != nil || back.TaskID != r.TaskID {
			t.Fatalf("%q: %+v, %v", value, back, err)
		}
		again := back
		if value2, err := again.Encode(); err != nil || !bytes.Equal(value, value2) {
			t.Fatalf("%q became %q, %v", value, value2, err)
		}
		sameNumbers(t, output, back.Output)
	})
}

// sameNumbers compares the first number of both texts.
func sameNumbers(t *testing.T, a, b []byte) {
	number := func(raw []byte) string {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		for {
			tok, err := dec.Token()
			if err != nil {
				return ""
			}
			if n, ok := tok.(json.Number); ok {
				return n.String()
			}
		}
	}
	x, y := number(a), number(b)
	if _, err := json.Number(x).Float64(); x == "" || err != nil {
		return // written as a string
	}
	if _, ok := new(big.Int).SetString(x, 10); ok && len(x) > 4000 {
		return
	}
	if x != y {
		t.Fatalf("number %s became %s", x, y)
	}
}

func BenchmarkEncodeResult(b *testing.B) {
	r := result("SUCCESS", `{"kind":"task","id":"task-1","status":{"state":"completed"},"artifacts":[{"parts":[{"kind":"text","text":"the answer \u00e9"}]}],"text":"the answer","n":12.5}`, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeTask(b *testing.B) {
	value, err := task().Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := records.DecodeTask(value); err != nil {
			b.Fatal(err)
		}
	}
}
