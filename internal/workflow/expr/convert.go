package expr

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// writer turns CEL values into JSON (rule E7) and stops at a size.
type writer struct {
	out []byte
	max int
}

// toJSON gives v as JSON of at most maxResult bytes.
func toJSON(v ref.Val) ([]byte, *fault) {
	w := &writer{max: maxResult}
	if raw, ok := rawOf(v); ok {
		if len(raw) > w.max {
			return nil, w.tooLarge()
		}
		return raw, nil
	}
	if f := w.value(v, 0); f != nil {
		return nil, f
	}
	return w.out, nil
}

func (w *writer) tooLarge() *fault { return tooMuch("expression_result", w.max, "bytes") }

// value appends v, which stands depth levels deep.
func (w *writer) value(v ref.Val, depth int) *fault {
	if raw, ok := rawOf(v); ok {
		if len(w.out)+len(raw) > w.max {
			return w.tooLarge()
		}
		if depth+depthOf(raw) > maxDepth {
			return tooMuch("json_depth", maxDepth, "levels")
		}
		w.out = append(w.out, raw...)
		return nil
	}
	var f *fault
	switch v := v.(type) {
	case traits.Lister:
		f = w.list(v, depth+1)
	case traits.Mapper:
		f = w.object(v, depth+1)
	case *record:
		f = w.record(v, depth+1)
	case *types.Optional:
		if v.HasValue() {
			return w.value(v.GetValue(), depth)
		}
		w.out = append(w.out, "null"...)
	default:
		f = w.scalar(v)
	}
	if f == nil && len(w.out) > w.max {
		f = w.tooLarge()
	}
	return f
}

func (w *writer) scalar(v ref.Val) *fault {
	switch v := v.(type) {
	case types.Null:
		w.out = append(w.out, "null"...)
	case types.Bool:
		w.out = strconv.AppendBool(w.out, bool(v))
	case types.Int:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case types.Uint:
		w.out = strconv.AppendUint(w.out, uint64(v), 10)
	case types.Double:
		return w.double(float64(v))
	case types.String:
		if len(w.out)+len(v) > w.max {
			return w.tooLarge()
		}
		w.out = appendQuote(w.out, string(v))
	case types.Bytes:
		if len(w.out)+len(v) > w.max {
			return w.tooLarge()
		}
		w.out = append(w.out, '"')
		w.out = base64.StdEncoding.AppendEncode(w.out, v)
		w.out = append(w.out, '"')
	case types.Timestamp:
		w.out = append(w.out, '"')
		w.out = v.UTC().AppendFormat(w.out, time.RFC3339Nano)
		w.out = append(w.out, '"')
	case types.Duration:
		w.out = append(w.out, '"')
		w.out = appendSeconds(w.out, v.Duration)
		w.out = append(w.out, '"')
	case *types.Err:
		return evalFault(v)
	default:
		return faultf("a value of type %s is no JSON", v.Type().TypeName())
	}
	return nil
}

// double writes the shortest digits that give the same number again.
func (w *writer) double(d float64) *fault {
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return faultf("%g is no JSON number", d)
	}
	format := byte('f')
	if abs := math.Abs(d); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	w.out = strconv.AppendFloat(w.out, d, format, -1, 64)
	return nil
}

// appendSeconds writes a duration as seconds with the fraction it needs.
func appendSeconds(dst []byte, d time.Duration) []byte {
	n := uint64(d)
	if d < 0 {
		dst, n = append(dst, '-'), -n
	}
	dst = strconv.AppendUint(dst, n/1e9, 10)
	if rest := n % 1e9; rest != 0 {
		digits := strconv.AppendUint(nil, rest+1e9, 10)[1:]
		for digits[len(digits)-1] == '0' {
			digits = digits[:len(digits)-1]
		}
		dst = append(append(dst, '.'), digits...)
	}
	return append(dst, 's')
}

func (w *writer) list(l traits.Lister, depth int) *fault {
	if depth > maxDepth {
		return tooMuch("json_depth", maxDepth, "levels")
	}
	w.out = append(w.out, '[')
	for i, it := 0, l.Iterator(); it.HasNext() == types.True; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if f := w.value(it.Next(), depth); f != nil {
			return f
		}
	}
	w.out = append(w.out, ']')
	return nil
}

// object writes members sorted by name, because the order of CEL maps differs
// from one evaluation to the next and outputs must not.
func (w *writer) object(m traits.Mapper, depth int) *fault {
	if depth > maxDepth {
		return tooMuch("json_depth", maxDepth, "levels")
	}
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return faultf("a map with keys of type %s is no JSON object", key.Type().TypeName())
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	w.out = append(w.out, '{')
	for i, name := range names {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(appendQuote(w.out, name), ':')
		if f := w.value(m.Get(types.String(name)), depth); f != nil {
			return f
		}
	}
	w.out = append(w.out, '}')
	return nil
}

// record writes the members that are there, sorted by name.
func (w *writer) record(r *record, depth int) *fault {
	members := map[string]ref.Val{}
	for name := range r.typ.fields {
		if v := r.member(name); v != nil {
			members[name] = v
		}
	}
	native := make(map[ref.Val]ref.Val, len(members))
	for name, v := range members {
		native[types.String(name)] = v
	}
	return w.object(types.NewRefValMap(types.DefaultTypeAdapter, native), depth)
}

// toText gives v as it stands inside a longer string (rule E1).
func toText(v ref.Val) (string, *fault) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return "", faultf("%g is no JSON number", float64(v))
		}
	case types.Null:
		return "", insideText(aNull)
	case *types.Optional:
		if !v.HasValue() {
			return "", insideText(aNull)
		}
		return toText(v.GetValue())
	case traits.Lister:
		return "", insideText(aList)
	case traits.Mapper, *record:
		return "", insideText(anObject)
	case types.Bool, types.Int, types.Uint:
	default:
		// Times, durations and bytes are strings in JSON.
		raw, f := toJSON(v)
		if f != nil {
			return "", f
		}
		return unquote(raw), nil
	}
	text, ok := v.ConvertToType(types.StringType).(types.String)
	if !ok {
		return "", faultf("a value of type %s cannot stand inside text", v.Type().TypeName())
	}
	return string(text), nil
}
