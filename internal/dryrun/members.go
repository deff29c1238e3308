package dryrun

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Members gives the names that the member at path, the path of a finding of [Parse], could
// have had there, sorted; none if the place has no names of its own.
func Members(path string) []string {
	var s scriptSchema
	if json.Unmarshal(schemaJSON, &s.root) != nil {
		return nil // it is embedded, and a test reads it
	}
	names := pathNames(path)
	if len(names) == 0 {
		return nil
	}
	places := s.forms(s.root)
	for _, name := range names[:len(names)-1] {
		places = s.below(places, name)
	}
	found := map[string]bool{}
	for _, place := range places {
		for name := range object(place["properties"]) {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

var pathName = regexp.MustCompile(`\[\d+\]|\["(?:[^"\\]|\\.)*"\]|[^.\[\]]+`)

// pathNames splits a path; an index is a name like others, as long as it stands in brackets.
func pathNames(path string) []string {
	names := pathName.FindAllString(path, -1)
	for i, name := range names {
		if quoted, ok := strings.CutPrefix(name, `["`); ok {
			names[i], _ = strconv.Unquote(`"` + strings.TrimSuffix(quoted, "]"))
		}
	}
	return names
}

type scriptSchema struct{ root map[string]any }

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

// forms gives the schemas that a value may fit by one of them.
func (s *scriptSchema) forms(of map[string]any) []map[string]any {
	all := []map[string]any{of}
	if ref, ok := of["$ref"].(string); ok {
		all = append(all, s.forms(object(object(s.root["$defs"])[strings.TrimPrefix(ref, "#/$defs/")]))...)
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := of[word].([]any)
		for _, form := range list {
			all = append(all, s.forms(object(form))...)
		}
	}
	return all
}

// below gives the schemas of a member, or of an item.
func (s *scriptSchema) below(places []map[string]any, name string) (inner []map[string]any) {
	for _, place := range places {
		next := object(object(place["properties"])[name])
		switch {
		case strings.HasPrefix(name, "["):
			next = object(place["items"])
		case next == nil:
			next = object(place["additionalProperties"])
		}
		if next != nil {
			inner = append(inner, s.forms(next)...)
		}
	}
	return inner
}
