package expr

import (
	"fmt"
	"maps"
	"slices"
)

const (
	// maxAlike bounds the length of names that are compared, in bytes: longer ones are
	// not misspelt but others.
	maxAlike = 64
	// maxLooked bounds the work of looking for similar names, in steps of [distance]:
	// some 50 ms for a whole document. It is worth its time to a person, who reads the
	// first findings.
	maxLooked = 10_000_000
)

// didYouMean words the nearest of names as a suggestion; "" if none is near.
func (c *Compiler) didYouMean(name string, names []string) string {
	if near := c.nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

// nearest gives the most similar of names, "" if none is similar, or if the compiler
// has looked for long enough.
func (c *Compiler) nearest(name string, names []string) string {
	if len(name) > maxAlike || c.looked.Load() > maxLooked {
		return ""
	}
	work := int64(len(names))
	best, most := "", max(1, len(name)/3)
	for _, candidate := range names {
		if candidate == name || len(candidate) > maxAlike || len(candidate)-len(name) > most || len(name)-len(candidate) > most {
			continue
		}
		work += int64(len(name)+1) * int64(len(candidate)+1)
		if d := distance(name, candidate); d <= most {
			best, most = candidate, d-1
		}
	}
	c.looked.Add(work)
	return best
}

// distance counts the bytes to insert, delete or replace, or neighbours to
// exchange, to make b of a. Both have at most maxAlike.
func distance(a, b string) int {
	var rows [3][maxAlike + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
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
