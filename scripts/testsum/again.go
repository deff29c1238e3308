package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// flakyAtMost is how many tests may have failed to be run again, their parts not
// counted: of more than that it is not a busy machine that they tell.
const flakyAtMost = 5

// mayPass reports whether all that failed are a few tests that may pass by themselves.
func (t *tally) mayPass() bool {
	tops := make(map[string]bool)
	for _, f := range t.failures {
		if f.test == "" || f.broken() {
			return false
		}
		tops[f.pkg+" "+f.top()] = true
	}
	return len(tops) > 0 && len(tops) <= flakyAtMost
}

// broken reports whether f wrote what no test writes that has only been too slow.
func (f failure) broken() bool {
	written := strings.Join(f.output, "")
	return slices.ContainsFunc([]string{"WARNING: DATA RACE", "race detected", "panic: ", "fatal error: ", "test timed out"},
		func(text string) bool { return strings.Contains(written, text) })
}

// top is the test that f is, or is a part of.
func (f failure) top() string {
	top, _, _ := strings.Cut(f.test, "/")
	return top
}

// again runs the tests that failed, those of each package by themselves, and reports
// whether all of them pass.
func (t *tally) again(args []string) bool {
	flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "./") })
	all, ok := t.failures, true
	t.failures = nil
	for len(all) > 0 {
		first := all[0]
		var these []failure
		these, all = parted(all, func(f failure) bool { return f.pkg == first.pkg })
		var tops []string
		for _, f := range these {
			tops = append(tops, regexp.QuoteMeta(f.top()))
		}
		slices.Sort(tops)
		tops = slices.Compact(tops)
		_, _ = fmt.Fprintf(t.out, "again %s %s\n", first.pkg, strings.Join(tops, " "))
		alone := newTally(t.out)
		if !alone.test(first.dir, append(slices.Clone(flags), "-count=1", "-run", "^("+strings.Join(tops, "|")+")$", first.pkg)) || alone.passed == 0 {
			t.failures, ok = append(t.failures, these...), false
			continue
		}
		t.flaky = append(t.flaky, these...)
		t.failed -= len(these)
		t.passed += len(these)
		t.skipped += alone.skipped
	}
	return ok
}

// parted gives those of all that are so, and the others.
func parted(all []failure, so func(failure) bool) (yes, no []failure) {
	for _, f := range all {
		if so(f) {
			yes = append(yes, f)
		} else {
			no = append(no, f)
		}
	}
	return yes, no
}
