package logging

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxDepth and maxNodes bound what is looked at of one value.
	maxDepth = 32
	maxNodes = 10_000
)

// replaceAttr is the ReplaceAttr of the handlers.
func (r *Redactor) replaceAttr(groups []string, a slog.Attr) slog.Attr {
	kind := a.Value.Kind()
	if kind == slog.KindBool || kind == slog.KindTime {
		return a
	}
	if SensitiveKey(a.Key) || slices.ContainsFunc(groups, SensitiveKey[string]) {
		if a.Value.Equal(slog.StringValue("")) || kind == slog.KindAny && a.Value.Any() == nil {
			return a
		}
		return slog.String(a.Key, redacted)
	}
	switch kind {
	case slog.KindString:
		if s := a.Value.String(); len(s) > MaxValue || looksJSON(s) {
			a.Value = slog.StringValue(r.text(s))
		}
	case slog.KindAny:
		a.Value = slog.AnyValue(r.value(a.Value.Any()))
	}
	return a
}

// value gives v without what stands under sensitive keys, as values that are
// safe to print and to encode.
func (r *Redactor) value(v any) (out any) {
	switch v := v.(type) {
	case nil, slog.Level, *slog.Source:
		return v
	}
	// A value's own methods may panic, such as on a nil pointer.
	defer func() {
		if p := recover(); p != nil {
			out = "!PANIC in " + fmt.Sprintf("%T", v)
		}
	}()
	w := walker{r: r, nodes: maxNodes, bytes: MaxValue}
	return w.any(v, 0)
}

// text redacts members of s if it is JSON, and cuts it.
func (r *Redactor) text(s string) string {
	if looksJSON(s) && len(s) <= MaxValue {
		if out, ok := r.json([]byte(s)); ok {
			return string(out)
		}
	}
	if len(s) <= MaxValue {
		return s
	}
	return r.cut(s)
}

func looksJSON[S ~string | ~[]byte](s S) bool { return len(s) > 1 && (s[0] == '{' || s[0] == '[') }

// json gives data without what stands under sensitive keys; the bytes stay as
// they are if there is nothing. It reports false if data is no JSON.
func (r *Redactor) json(data []byte) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	changed := false
	v = redactJSON(v, &changed)
	if !changed {
		return data, true
	}
	out, err := json.Marshal(v)
	return out, err == nil
}

func redactJSON(v any, changed *bool) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if _, flag := x.(bool); SensitiveKey(k) && !flag && x != nil && x != "" && x != redacted {
				v[k], *changed = redacted, true
			} else {
				v[k] = redactJSON(x, changed)
			}
		}
	case []any:
		for i, x := range v {
			v[i] = redactJSON(x, changed)
		}
	}
	return v
}

// walker copies one value within limits.
type walker struct {
	r            *Redactor
	nodes, bytes int // left
}

const cutOff = "… (cut)"

func (w *walker) any(v any, depth int) any {
	if v == nil {
		return nil
	}
	return w.walk(reflect.ValueOf(v), depth)
}

func (w *walker) walk(v reflect.Value, depth int) any {
	if w.nodes--; w.nodes < 0 || w.bytes < 0 || depth > maxDepth {
		return cutOff
	}
	if v.CanInterface() {
		if out, ok := w.known(v.Interface(), depth); ok {
			return out
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return v.Uint()
	case reflect.Float32, reflect.Float64:
		return number(v.Float())
	case reflect.String:
		return w.text(v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return w.walk(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		return w.list(v, depth)
	case reflect.Map:
		return w.dict(v, depth)
	case reflect.Struct:
		return w.fields(v, depth)
	default: // func, chan, complex, unsafe.Pointer
		return v.Type().String()
	}
}

// known handles types by what they say about themselves.
func (w *walker) known(v any, depth int) (any, bool) {
	switch v := v.(type) {
	case slog.LogValuer:
		resolved := slog.AnyValue(v).Resolve()
		if resolved.Kind() == slog.KindGroup {
			return w.group(resolved.Group(), depth), true
		}
		return w.any(resolved.Any(), depth+1), true
	case []slog.Attr:
		return w.group(v, depth), true
	case error:
		return w.text(v.Error()), true
	case json.RawMessage:
		return w.raw(v), true
	case []byte:
		return w.blob(v), true
	case time.Duration:
		return v.String(), true
	case json.Number:
		return v, true
	case url.URL:
		return w.text(v.Redacted()), true
	case *url.URL:
		if v == nil {
			return nil, true
		}
		return w.text(v.Redacted()), true
	case encoding.TextMarshaler:
		return w.marshalled(v.MarshalText), true
	case json.Marshaler:
		b, err := v.MarshalJSON()
		if err != nil {
			return w.text(err.Error()), true
		}
		return w.raw(b), true
	case fmt.Stringer:
		// Only for what would be a bare number: a struct shows its fields.
		if reflect.TypeOf(v).Kind() != reflect.Struct && reflect.TypeOf(v).Kind() != reflect.Pointer {
			return w.text(v.String()), true
		}
	}
	return nil, false
}

func (w *walker) marshalled(marshal func() ([]byte, error)) any {
	b, err := marshal()
	if err != nil {
		return w.text(err.Error())
	}
	return w.text(string(b))
}

// raw keeps JSON as JSON where that is possible.
func (w *walker) raw(data []byte) any {
	if len(data) <= min(MaxValue, w.bytes) {
		if out, ok := w.r.json(data); ok {
			w.bytes -= len(out)
			return json.RawMessage(out)
		}
	}
	return w.blob(data)
}

func (w *walker) blob(data []byte) any {
	if !utf8.Valid(data) {
		return strconv.Itoa(len(data)) + " bytes"
	}
	return w.text(string(data))
}

func (w *walker) text(s string) any {
	s = w.r.text(s)
	if len(s) > w.bytes && w.bytes < MaxValue {
		w.bytes = -1
		return cutOff
	}
	w.bytes -= len(s)
	return s
}

func number(f float64) any {
	if f-f != 0 { // JSON has neither infinities nor NaN
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return f
}

func (w *walker) list(v reflect.Value, depth int) any {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return nil
	}
	if v.Type().Elem().Kind() == reflect.Uint8 { // also named byte types and arrays
		if v.Len() > MaxValue {
			return strconv.Itoa(v.Len()) + " bytes"
		}
		data := make([]byte, v.Len())
		for i := range data {
			data[i] = byte(v.Index(i).Uint())
		}
		return w.blob(data)
	}
	out := make([]any, 0, min(v.Len(), 64))
	for i := range v.Len() {
		if w.nodes <= 0 || w.bytes < 0 {
			return append(out, cutOff)
		}
		out = append(out, w.walk(v.Index(i), depth+1))
	}
	return out
}

func (w *walker) dict(v reflect.Value, depth int) any {
	if v.IsNil() {
		return nil
	}
	out := make(map[string]any, min(v.Len(), 64))
	for iter := v.MapRange(); iter.Next(); {
		if w.nodes <= 0 || w.bytes < 0 {
			out["…"] = cutOff
			break
		}
		key := fmt.Sprint(w.walk(iter.Key(), depth+1))
		out[key] = w.under(key, iter.Value(), depth)
	}
	return out
}

// under copies what stands under key.
func (w *walker) under(key string, v reflect.Value, depth int) any {
	switch {
	case !v.IsValid():
		return nil
	case isSecret(key, v):
		return redacted
	}
	return w.walk(v, depth+1)
}

// isSecret reports whether what stands under key has to be hidden. That
// something is empty, or a flag, may be seen.
func isSecret(key string, v reflect.Value) bool {
	return SensitiveKey(key) && v.Kind() != reflect.Bool && !v.IsZero()
}

// fields copies the exported fields under the names that JSON gives them.
func (w *walker) fields(v reflect.Value, depth int) any {
	t := v.Type()
	out := make(map[string]any, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		// The Go name says what it is as well as the other.
		if isSecret(f.Name, v.Field(i)) {
			out[name] = redacted
			continue
		}
		out[name] = w.under(name, v.Field(i), depth)
	}
	return out
}

func (w *walker) group(attrs []slog.Attr, depth int) any {
	if w.nodes--; w.nodes < 0 || depth > maxDepth {
		return cutOff
	}
	out := make(map[string]any, len(attrs))
	for _, a := range attrs {
		value := a.Value.Resolve()
		if value.Kind() == slog.KindGroup && !SensitiveKey(a.Key) {
			out[a.Key] = w.group(value.Group(), depth+1)
			continue
		}
		out[a.Key] = w.under(a.Key, reflect.ValueOf(value.Any()), depth)
	}
	return out
}
