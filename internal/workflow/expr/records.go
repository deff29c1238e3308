package expr

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// recordType is a name of rule E4 that has fixed members, so that a misspelt
// member is found at validation.
type recordType struct {
	name   string
	self   *cel.Type
	fields map[string]*cel.Type
}

// recordTypes are the records of the language by the name of their type.
type recordTypes struct {
	workflow, run, step, fail, each, plan *recordType

	byName map[string]*recordType
}

func newRecordTypes() *recordTypes {
	t := &recordTypes{byName: map[string]*recordType{}}
	add := func(name string, fields map[string]*cel.Type) *recordType {
		r := &recordType{name: name, self: cel.ObjectType(name), fields: fields}
		t.byName[name] = r
		return r
	}
	t.workflow = add("parley.Workflow", map[string]*cel.Type{
		"id": cel.StringType, "name": cel.StringType, "version": cel.StringType, "input": cel.DynType,
	})
	t.fail = add("parley.Error", map[string]*cel.Type{
		"code": cel.StringType, "message": cel.StringType, "step": cel.StringType, "attempt": cel.IntType,
		"agent": cel.StringType, "retryable": cel.BoolType, "details": cel.DynType,
		"cause": cel.ObjectType("parley.Error"),
	})
	t.run = add("parley.Run", map[string]*cel.Type{
		"id": cel.StringType, "labels": cel.MapType(cel.StringType, cel.StringType), "trigger": cel.DynType,
		"scheduled_at": cel.TimestampType, "parent": cel.DynType, "started_at": cel.TimestampType,
		"deadline": cel.TimestampType, "outcome": cel.StringType, "error": t.fail.self,
	})
	t.step = add("parley.Step", map[string]*cel.Type{
		"status": cel.StringType, "output": cel.DynType, "error": t.fail.self, "handled": cel.BoolType,
		"attempts": cel.IntType, "case": cel.DynType, "started_at": cel.TimestampType, "ended_at": cel.TimestampType,
	})
	t.each = add("parley.Each", map[string]*cel.Type{
		"item": cel.DynType, "index": cel.IntType, "total": cel.IntType, "is_first": cel.BoolType, "is_last": cel.BoolType,
		"previous": cel.DynType, "parent": cel.ObjectType("parley.Each"),
	})
	t.plan = add("parley.Plan", map[string]*cel.Type{"input": cel.DynType})
	return t
}

// names are the members, sorted.
func (t *recordType) names() []string { return slices.Sorted(maps.Keys(t.fields)) }

// provider tells the checker about the records.
type provider struct {
	types.Provider
	records *recordTypes
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if r, ok := p.records.byName[name]; ok {
		return types.NewTypeTypeWithParam(r.self), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if r, ok := p.records.byName[name]; ok {
		return r.names(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	r, ok := p.records.byName[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	t, ok := r.fields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type: t,
		IsSet: func(target any) bool {
			rec, ok := target.(*record)
			return ok && rec.isSet(field)
		},
		GetFrom: func(target any) (any, error) {
			rec, ok := target.(*record)
			if !ok {
				return nil, fmt.Errorf("null has no member %q", field)
			}
			v := rec.get(field)
			if e, ok := v.(*types.Err); ok {
				return nil, e
			}
			return v, nil
		},
	}, true
}

// record is a value of a recordType. Members are made when they are first
// looked at; nil is a member that is absent.
type record struct {
	typ  *recordType
	make func(field string) ref.Val
	made map[string]ref.Val
}

func (r *record) member(field string) ref.Val {
	v, ok := r.made[field]
	if !ok {
		v = r.make(field)
		if r.made == nil {
			r.made = map[string]ref.Val{}
		}
		r.made[field] = v
	}
	return v
}

func (r *record) get(field string) ref.Val {
	if _, ok := r.typ.fields[field]; !ok {
		return types.NewErr("no such member: %s", field)
	}
	if v := r.member(field); v != nil {
		return v
	}
	return types.NewErr("no such member: %s", field)
}

// isSet reports whether a member is there and not null.
func (r *record) isSet(field string) bool {
	if _, ok := r.typ.fields[field]; !ok {
		return false
	}
	v := r.member(field)
	return v != nil && v != types.NullValue && !types.IsError(v)
}

// Get implements traits.Indexer for values whose static type is dyn.
func (r *record) Get(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	return r.get(string(name))
}

// IsSet implements traits.FieldTester.
func (r *record) IsSet(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	return types.Bool(ok && r.isSet(string(name)))
}

// Equal implements ref.Val: records are equal if all members are.
func (r *record) Equal(other ref.Val) ref.Val {
	o, ok := other.(*record)
	if !ok || o.typ != r.typ {
		return types.False
	}
	for name := range r.typ.fields {
		a, b := r.member(name), o.member(name)
		if (a == nil) != (b == nil) || a != nil && types.Equal(a, b) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToType implements ref.Val.
func (r *record) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.NewTypeTypeWithParam(r.typ.self)
	}
	return types.NewErr("type conversion error from '%s' to '%s'", r.typ.name, t)
}

// ConvertToNative implements ref.Val.
func (r *record) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("unsupported conversion of %s to %v", r.typ.name, t)
}

// Type implements ref.Val.
func (r *record) Type() ref.Type { return r.typ.self }

// Value implements ref.Val.
func (r *record) Value() any { return r }

var (
	_ traits.Mapper      = (*jsonObject)(nil)
	_ traits.Foldable    = (*jsonObject)(nil)
	_ traits.Lister      = (*jsonList)(nil)
	_ traits.Foldable    = (*jsonList)(nil)
	_ traits.Indexer     = (*record)(nil)
	_ traits.FieldTester = (*record)(nil)
)
