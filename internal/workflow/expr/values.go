package expr

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// rawJSON is a JSON value on its way into CEL. It is decoded one level at a
// time, and only if it is looked at.
type rawJSON []byte

// adapter turns Go values into CEL values (rule E6).
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	if raw, ok := value.(rawJSON); ok {
		return a.fromJSON(raw)
	}
	return a.Adapter.NativeToValue(value)
}

func (a adapter) fromJSON(raw rawJSON) ref.Val {
	raw = rawJSON(trim(raw))
	if len(raw) == 0 {
		return types.NullValue
	}
	switch raw[0] {
	case '{':
		return &jsonObject{raw: raw, adapter: a}
	case '[':
		return &jsonList{raw: raw, adapter: a}
	case '"':
		return types.String(unquote(raw))
	case 't':
		return types.True
	case 'f':
		return types.False
	case 'n':
		return types.NullValue
	}
	return fromNumber(string(raw))
}

// fromNumber is rule E6: whole numbers that fit int64 are int.
func fromNumber(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	d, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(d, 0) {
		return types.NewErr("the number %s is out of range", shorten(text))
	}
	return types.Double(d)
}

// jsonObject is a JSON object. Members are found in the text until something
// needs all of them.
type jsonObject struct {
	raw     rawJSON
	adapter adapter
	seen    map[string]ref.Val // nil for members that are not there
	whole   *orderedMap
}

// maxSearches is how often a member is searched for before all are decoded:
// a loop over many names must not read the text for each.
const maxSearches = 4

func (o *jsonObject) all() *orderedMap {
	if o.whole == nil {
		members, keys := map[ref.Val]ref.Val{}, []ref.Val{}
		eachMember(o.raw, func(name, value []byte) bool {
			key := types.String(unquote(name))
			if _, twin := members[key]; !twin {
				keys = append(keys, key)
			}
			members[key] = o.adapter.fromJSON(value)
			return true
		})
		o.whole = &orderedMap{Mapper: types.NewRefValMap(o.adapter, members), keys: keys}
	}
	return o.whole
}

// Find implements traits.Mapper.
func (o *jsonObject) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok || o.whole != nil {
		return o.all().Find(key)
	}
	v, ok := o.seen[string(name)]
	if !ok && len(o.seen) == maxSearches {
		return o.all().Find(key)
	}
	if !ok {
		if raw, found := member(o.raw, string(name)); found {
			v = o.adapter.fromJSON(rawJSON(raw))
		}
		if o.seen == nil {
			o.seen = map[string]ref.Val{}
		}
		o.seen[string(name)] = v
	}
	return v, v != nil
}

// Get implements traits.Indexer.
func (o *jsonObject) Get(key ref.Val) ref.Val {
	v, ok := o.Find(key)
	if !ok {
		return types.ValOrErr(v, "no such key: %v", key)
	}
	return v
}

// Contains implements traits.Container.
func (o *jsonObject) Contains(key ref.Val) ref.Val {
	v, ok := o.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(ok)
}

// Fold implements traits.Foldable.
func (o *jsonObject) Fold(f traits.Folder)             { o.all().Fold(f) }
func (o *jsonObject) ConvertToType(t ref.Type) ref.Val { return o.all().ConvertToType(t) }
func (o *jsonObject) Equal(other ref.Val) ref.Val      { return o.all().Equal(other) }
func (o *jsonObject) Type() ref.Type                   { return types.MapType }
func (o *jsonObject) Value() any                       { return o.all().Value() }
func (o *jsonObject) Iterator() traits.Iterator        { return o.all().Iterator() }
func (o *jsonObject) Size() ref.Val                    { return o.all().Size() }
func (o *jsonObject) IsZeroValue() bool                { return o.Size() == types.IntZero }
func (o *jsonObject) ConvertToNative(t reflect.Type) (any, error) {
	return o.all().ConvertToNative(t)
}

// jsonList is a JSON list.
type jsonList struct {
	raw     rawJSON
	adapter adapter
	whole   traits.Lister
}

func (l *jsonList) all() traits.Lister {
	if l.whole == nil {
		elements := []ref.Val{}
		eachElement(l.raw, func(v []byte) bool {
			elements = append(elements, l.adapter.fromJSON(v))
			return true
		})
		l.whole = types.NewRefValList(l.adapter, elements)
	}
	return l.whole
}

// Fold implements traits.Foldable.
func (l *jsonList) Fold(f traits.Folder)             { types.ToFoldableList(l.all()).Fold(f) }
func (l *jsonList) Add(other ref.Val) ref.Val        { return l.all().Add(other) }
func (l *jsonList) Contains(v ref.Val) ref.Val       { return l.all().Contains(v) }
func (l *jsonList) Get(index ref.Val) ref.Val        { return l.all().Get(index) }
func (l *jsonList) ConvertToType(t ref.Type) ref.Val { return l.all().ConvertToType(t) }
func (l *jsonList) Equal(other ref.Val) ref.Val      { return l.all().Equal(other) }
func (l *jsonList) Type() ref.Type                   { return types.ListType }
func (l *jsonList) Value() any                       { return l.all().Value() }
func (l *jsonList) Iterator() traits.Iterator        { return l.all().Iterator() }
func (l *jsonList) Size() ref.Val                    { return l.all().Size() }
func (l *jsonList) IsZeroValue() bool                { return l.Size() == types.IntZero }
func (l *jsonList) ConvertToNative(t reflect.Type) (any, error) {
	return l.all().ConvertToNative(t)
}

// rawOf gives the JSON text of a value that CEL passes through untouched.
func rawOf(v ref.Val) (json.RawMessage, bool) {
	switch v := v.(type) {
	case *jsonObject:
		return json.RawMessage(v.raw), true
	case *jsonList:
		return json.RawMessage(v.raw), true
	}
	return nil, false
}
