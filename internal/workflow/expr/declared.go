package expr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// schema is a declared JSON Schema, as far as rule E10 reads it: which members
// values may have. The zero schema says nothing.
type schema struct {
	root any // the whole document, for $ref
	at   any
}

func newSchema(raw json.RawMessage) (schema, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return schema{}, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return schema{}, fmt.Errorf("the schema is not JSON: %w", err)
	}
	return schema{root: v, at: v}, nil
}

// object gives the keywords of the schema; nil if it says nothing, or nothing
// that can be told without the value (allOf, if, …).
func (s schema) object() map[string]any {
	for range 8 {
		m, ok := s.at.(map[string]any)
		if !ok {
			return nil
		}
		for _, keyword := range [...]string{
			"allOf", "anyOf", "oneOf", "not", "if", "$dynamicRef", "$recursiveRef", "dependentSchemas", "dependencies",
		} {
			if _, ok := m[keyword]; ok {
				return nil
			}
		}
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		if s.besideRef(m) {
			return nil
		}
		if s.at, ok = s.pointed(ref); !ok {
			return nil
		}
	}
	return nil
}

// besideRef reports whether a schema says more than what its $ref leads to. In draft-07
// the $ref stands for all of it.
func (s schema) besideRef(m map[string]any) bool {
	root, _ := s.root.(map[string]any)
	if draft, _ := root["$schema"].(string); strings.Contains(draft, "draft-07") {
		return false
	}
	for keyword := range m {
		switch keyword {
		case "$ref", "$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default", "examples":
		default:
			return true
		}
	}
	return false
}

// pointed finds what a $ref inside the document names.
func (s schema) pointed(ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || (pointer != "" && pointer[0] != '/') || strings.Contains(pointer, "%") {
		return nil, false
	}
	v := s.root
	for token := range jsontext.Pointer(pointer).Tokens() {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[token]; !ok {
			return nil, false
		}
	}
	return v, true
}

func (s schema) in(at any) schema { return schema{root: s.root, at: at} }

// verdict is what a schema says about a member.
type verdict int

const (
	allowed verdict = iota
	unmentioned
	excluded
)

// member gives what the schema says about a member, and the member's schema.
func (s schema) member(name string) (schema, verdict) {
	m := s.object()
	if m == nil {
		return schema{}, allowed
	}
	properties, _ := m["properties"].(map[string]any)
	if p, ok := properties[name]; ok {
		if p == false {
			return schema{}, excluded
		}
		return s.in(p), allowed
	}
	patterns, _ := m["patternProperties"].(map[string]any)
	for pattern, p := range patterns {
		re, err := regexp.Compile(pattern)
		if err != nil || re.MatchString(name) {
			if err != nil || len(patterns) > 1 {
				return schema{}, allowed
			}
			return s.in(p), allowed
		}
	}
	required, _ := m["required"].([]any)
	for _, key := range [...]string{"additionalProperties", "unevaluatedProperties"} {
		if rest, ok := m[key]; ok {
			if rest == false {
				return schema{}, excluded
			}
			return s.in(rest), allowed
		}
	}
	if slices.Contains(required, any(name)) || len(properties)+len(patterns)+len(required) == 0 {
		return schema{}, allowed
	}
	return schema{}, unmentioned
}

// item gives the schema of an element.
func (s schema) item() schema {
	m := s.object()
	if m == nil || m["prefixItems"] != nil {
		return schema{}
	}
	if items, ok := m["items"].(map[string]any); ok {
		return s.in(items)
	}
	return schema{}
}

// only gives the one type that values have, "" if there may be several.
func (s schema) only() string {
	m := s.object()
	if m == nil {
		return ""
	}
	t, _ := m["type"].(string)
	return t
}

func (s schema) names() []string {
	properties, _ := s.object()["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

// members checks a way through a value against what is declared (rule E10).
func (c *Compiler) members(s schema, path string, chain []access) []Finding {
	for _, step := range chain {
		if s.at == nil {
			return nil
		}
		switch only := s.only(); {
		case step.unknown && only != "array":
			return nil
		case step.index:
			if only != "" && only != "array" && only != "object" {
				return []Finding{{Code: CodeExpression, Text: fmt.Sprintf("`%s` is declared as %s and has no items", path, only)}}
			}
			s = s.item()
			path += "[]"
			continue
		case only != "" && only != "object":
			return []Finding{{Code: CodeExpression, Text: fmt.Sprintf("`%s` is declared as %s and has no member %q", path, only, step.name)}}
		}
		next, v := s.member(step.name)
		if v == excluded || v == unmentioned && !step.soft {
			f := Finding{Code: CodeExpression, Warning: v == unmentioned, Suggestion: c.didYouMean(step.name, s.names())}
			f.Text = fmt.Sprintf("the schema of `%s` does not mention %q", path, step.name)
			if v == excluded {
				f.Text = fmt.Sprintf("the schema of `%s` excludes %q", path, step.name)
			}
			return []Finding{f}
		}
		s = next
		path += "." + step.name
	}
	return nil
}
