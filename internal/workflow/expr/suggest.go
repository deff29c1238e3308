package expr

import (
	"fmt"
	"maps"
	"slices"
)

// didYouMean words the nearest of names as a suggestion; "" if none is near.
func didYouMean(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// nearest gives the most similar of names, "" if none is similar.
func nearest(name string, names []string) string {
	best, most := "", max(1, len(name)/3)
	for _, candidate := range names {
		if candidate == name || len(candidate)-len(name) > most || len(name)-len(candidate) > most {
			continue
		}
		if d := distance(name, candidate); d <= most {
			best, most = candidate, d-1
		}
	}
	return best
}

// distance counts the bytes to insert, delete or replace, or neighbours to
// exchange, to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// fieldNames are the members of all records.
func (t *recordTypes) fieldNames() []string {
	names := map[string]bool{}
	for _, r := range t.byName {
		for name := range r.fields {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
