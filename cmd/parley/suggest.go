package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// nearest gives the candidates that name may have been meant for, nearest
// first, at most three.
func nearest(name string, candidates []string) []string {
	type scored struct {
		name string
		far  int
	}
	var close []scored
	low := strings.ToLower(name)
	for _, c := range candidates {
		far := distance(low, strings.ToLower(c))
		if len(low) > 1 && strings.HasPrefix(strings.ToLower(c), low) {
			far = min(far, 1)
		}
		if far <= max(1, utf8.RuneCountInString(name)/3) {
			close = append(close, scored{c, far})
		}
	}
	slices.SortStableFunc(close, func(a, b scored) int { return a.far - b.far })
	var out []string
	for _, s := range close[:min(3, len(close))] {
		if !slices.Contains(out, s.name) {
			out = append(out, s.name)
		}
	}
	return out
}

// didYouMean gives the question, or "" if nothing is near.
func didYouMean(name string, candidates []string) string {
	near := nearest(name, candidates)
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// distance counts the insertions, deletions, changes and swaps of neighbours
// that turn a into b. Names longer than 255 characters are taken as far apart.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 255 || len(y) > 255 {
		return 255
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
