package dryrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// failures gives the expectations that a result does not meet, one line each.
func (e *Expect) failures(r *Result) []string {
	if e == nil {
		return nil
	}
	f := &failures{}
	run := &r.Run
	if e.Refused {
		f.add("refused", "a start that is refused", "a run that is "+string(run.Status))
		return f.lines
	}
	if run.Status != e.Status {
		got := string(run.Status)
		if run.Error != nil {
			got += " (" + errorText(run.Error) + ")"
		}
		f.add("status", string(e.Status), got)
	}
	if e.Error != nil {
		f.error(e.Error, run.Error)
	}
	if e.Output != nil {
		f.json("output", e.Output, run.Output)
	}
	f.steps(e.Steps, run.Steps)
	if e.Calls != nil {
		f.calls("call", e.Calls, r.Calls)
	}
	if e.Runs != nil {
		f.calls("run", e.Runs, r.Started)
	}
	if e.Emits != nil {
		f.emits(e.Emits, r.Emitted)
	}
	if run.EndedAt != nil {
		took := run.EndedAt.Sub(run.CreatedAt)
		if e.Took != nil && took != *e.Took {
			f.add("took", Elapsed(*e.Took), Elapsed(took))
		}
		if e.Within != nil && took > *e.Within {
			f.add("within", "at most "+Elapsed(*e.Within), Elapsed(took))
		}
	}
	return f.lines
}

// refusal gives the result of a start that was refused; the error, if that is not
// expected.
func (e *Expect) refusal(err error) (*Result, error) {
	refused, ok := errors.AsType[*parley.Error](err)
	if e == nil || !e.Refused || !ok {
		return nil, err
	}
	f := &failures{}
	if !strings.Contains(refused.Message, e.Why) {
		f.add("refused", "a text with "+strconv.Quote(e.Why), strconv.Quote(refused.Message))
	}
	return &Result{Refused: refused, Failures: f.lines}, nil
}

// maxFailures bounds what is said of one value or list.
const maxFailures = 20

// failures collects lines "place: want this, got that".
type failures struct{ lines []string }

func (f *failures) add(place, want, got string) {
	f.lines = append(f.lines, place+": want "+want+", got "+got)
}

func (f *failures) error(want *ExpectedError, got *parley.Error) {
	if got == nil {
		f.add("error", "one", "none")
		return
	}
	for _, x := range []struct{ place, want, got string }{
		{"error.code", want.Code, string(got.Code)}, {"error.step", want.Step, got.Step}, {"error.agent", want.Agent, got.Agent},
	} {
		if x.want != "" && x.want != x.got {
			f.add(x.place, orNothing(x.want), orNothing(x.got)+" ("+errorText(got)+")")
		}
	}
	if want.Message != "" && !strings.Contains(got.Message, want.Message) {
		f.add("error.message", "a text with "+strconv.Quote(want.Message), strconv.Quote(got.Message))
	}
}

func (f *failures) steps(want map[string]ExpectedStep, got []parley.Step) {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		place := "steps." + path
		i := slices.IndexFunc(got, func(s parley.Step) bool { return s.ID == path })
		if i < 0 {
			names := make([]string, 0, len(got))
			for _, s := range got {
				names = append(names, s.ID)
			}
			f.add(place, "a step", "none of this path; there are "+orNothing(strings.Join(names, ", ")))
			continue
		}
		f.step(place, want[path], got[i])
	}
}

func (f *failures) step(place string, want ExpectedStep, got parley.Step) {
	if want.Status != "" && want.Status != got.Status {
		text := string(got.Status)
		if got.Error != nil {
			text += " (" + errorText(got.Error) + ")"
		}
		f.add(place, string(want.Status), text)
	}
	if want.Output != nil {
		f.json(place+".output", want.Output, got.Output)
	}
	if want.Attempts != nil && *want.Attempts != got.Attempts {
		f.add(place+".attempts", number(*want.Attempts), number(got.Attempts))
	}
	if want.Handled != nil && *want.Handled != got.Handled {
		f.add(place+".handled", strconv.FormatBool(*want.Handled), strconv.FormatBool(got.Handled))
	}
	if want.Error != "" {
		code := ""
		if got.Error != nil {
			code = string(got.Error.Code)
		}
		if code != want.Error {
			f.add(place+".error", want.Error, orNothing(code))
		}
	}
}

// calls compares calls of agents, or runs that were started.
func (f *failures) calls(what string, want []ExpectedCall, got []Call) {
	for i := range max(len(want), len(got)) {
		place := fmt.Sprintf("%ss[%d]", what, i)
		switch {
		case len(f.lines) > maxFailures:
			return
		case i >= len(want):
			f.add(place, "no "+what, fmt.Sprintf("%s by step %s with %s", got[i].Agent, got[i].Step, short(got[i].Input)))
			continue
		case i >= len(got):
			f.add(place, want[i].Agent, "no "+what)
			continue
		}
		x, y := want[i], got[i]
		if x.Agent != y.Agent {
			f.add(place, x.Agent, fmt.Sprintf("%s by step %s", y.Agent, y.Step))
			continue
		}
		if x.Step != "" && x.Step != y.Step {
			f.add(place+".step", x.Step, y.Step)
		}
		if x.Input != nil {
			f.json(place+".input", x.Input, y.Input)
		}
		if x.At != nil && *x.At != y.At {
			f.add(place+".at", Elapsed(*x.At), Elapsed(y.At))
		}
	}
}

func (f *failures) emits(want []ExpectedEmit, got []parley.Signal) {
	for i := range max(len(want), len(got)) {
		place := fmt.Sprintf("emits[%d]", i)
		switch {
		case len(f.lines) > maxFailures:
			return
		case i >= len(want):
			f.add(place, "no event", got[i].Name+" with "+short(got[i].Data))
			continue
		case i >= len(got):
			f.add(place, want[i].Name, "no event")
			continue
		}
		x, y := want[i], got[i]
		if x.Name != y.Name {
			f.add(place, x.Name, y.Name)
			continue
		}
		if x.Key != nil && *x.Key != y.Key {
			f.add(place+".key", strconv.Quote(*x.Key), strconv.Quote(y.Key))
		}
		if x.Data != nil {
			f.json(place+".data", x.Data, y.Data)
		}
	}
}

// json compares two values and names every place where they differ.
func (f *failures) json(place string, want, got json.RawMessage) {
	before := len(f.lines)
	a, _ := value(want)
	b, ok := value(got)
	if !ok {
		f.add(place, short(want), "nothing")
		return
	}
	f.compare(place, a, b)
	if n := len(f.lines) - before; n > maxFailures {
		f.lines = append(f.lines[:before+maxFailures], fmt.Sprintf("%s: and %d more differences", place, n-maxFailures))
	}
}

func (f *failures) compare(place string, want, got any) {
	switch a := want.(type) {
	case map[string]any:
		if b, ok := got.(map[string]any); ok {
			f.compareObjects(place, a, b)
			return
		}
	case []any:
		if b, ok := got.([]any); ok {
			for i := range max(len(a), len(b)) {
				at := fmt.Sprintf("%s[%d]", place, i)
				switch {
				case i >= len(a):
					f.add(at, "nothing", text(b[i]))
				case i >= len(b):
					f.add(at, text(a[i]), "nothing")
				default:
					f.compare(at, a[i], b[i])
				}
			}
			return
		}
	}
	if !same(want, got) {
		f.add(place, text(want), text(got))
	}
}

func (f *failures) compareObjects(place string, want, got map[string]any) {
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, wanted := want[name]
		b, there := got[name]
		switch at := place + "." + name; {
		case !wanted:
			f.add(at, "nothing", text(b))
		case !there:
			f.add(at, text(a), "nothing")
		default:
			f.compare(at, a, b)
		}
	}
}

// contains reports whether a value has every member of another, at every depth;
// what is no object is equal.
func contains(whole, part json.RawMessage) bool {
	a, ok := value(whole)
	b, _ := value(part)
	return ok && holds(a, b)
}

func holds(whole, part any) bool {
	b, ok := part.(map[string]any)
	if !ok {
		return same(whole, part)
	}
	a, ok := whole.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range b {
		if w, there := a[name]; !there || !holds(w, v) {
			return false
		}
	}
	return true
}

// same compares JSON values, numbers by value.
func same(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && equalNumbers(x.String(), y.String())
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, same)
	}
	return a == b
}

// equalNumbers compares numbers by value; those that are too long to be computed
// with, by their digits.
func equalNumbers(a, b string) bool {
	if a == b {
		return true
	}
	x, okX := rational(a)
	y, okY := rational(b)
	return okX && okY && x.Cmp(y) == 0
}

func rational(text string) (*big.Rat, bool) {
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); len(text) > 400 || ok && len(strings.TrimLeft(exponent, "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func value(raw json.RawMessage) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	ok = d.Decode(&v) == nil
	return v, ok
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "?" // what was read as JSON can be written as JSON
	}
	return short(bytes.TrimSpace(b.Bytes()))
}

// short cuts a long value.
func short(raw []byte) string {
	const most = 200
	if len(raw) <= most {
		return orNothing(string(raw))
	}
	return strings.ToValidUTF8(string(raw[:most]), "") + "…"
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func errorText(e *parley.Error) string {
	if e.Step != "" {
		return "step " + e.Step + ": " + e.Error()
	}
	return e.Error()
}

func number(n int) string { return strconv.Itoa(n) }

// Elapsed writes a span of virtual time: 0s, 1.5s, 1h30m, 30d, 2d3h.
func Elapsed(d time.Duration) string {
	const day = 24 * time.Hour
	days := ""
	if d >= day {
		days = strconv.FormatInt(int64(d/day), 10) + "d"
		if d %= day; d == 0 {
			return days
		}
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return days + s
}
