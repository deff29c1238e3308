package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/config"
)

// TestC7_RetentionSettings: ages may have days; workflows have rules of their own, in
// the file as a section and elsewhere as text.
func TestC7_RetentionSettings(t *testing.T) {
	const day = 24 * time.Hour
	week, zero, many, none := 7*day, time.Duration(0), 100, 0
	want := map[string]config.RetentionRule{"night.ly": {Age: &week, Runs: &many}, "audit": {Age: &zero}, "b": {Runs: &none}}
	file := `
retention:
  age: 90d
  runs: 5000
  every: 1m
  archive: kept
  workflows:
    night.ly: {age: 7d, runs: 100}
    audit: {age: 0s}
    b: {runs: 0}
`
	for name, got := range map[string]*config.Loaded{
		"file": mustLoad(t, file, nil, nil),
		"view": mustLoad(t, "retention:\n  age: 90d\n  runs: 5000\n  every: 1m\n  workflows: ['night.ly:age=7d:runs=100', 'audit:age=0s', 'b:runs=0']\n", nil, nil),
		"variables": mustLoad(t, "", []string{
			"PARLEY_RETENTION__AGE=90d", "PARLEY_RETENTION__RUNS=5000", "PARLEY_RETENTION__EVERY=60s",
			"PARLEY_RETENTION__WORKFLOWS=night.ly:runs=100:age=6d24h,audit:age=0s b:runs=0",
		}, nil),
	} {
		r := got.Retention
		if r.Age != 90*day || r.Runs != 5000 || r.Every != time.Minute {
			t.Errorf("%s: %+v", name, r)
		}
		if diff := cmp.Diff(want, r.Workflows); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	r := mustLoad(t, "", nil, nil).Retention
	if r.Age != 0 || r.Runs != 0 || r.Archive != "" || len(r.Workflows) != 0 {
		t.Errorf("without settings: %+v", r)
	}
}

// TestC7_RetentionSettingsRefused: what cannot be meant is refused with its place.
func TestC7_RetentionSettingsRefused(t *testing.T) {
	for file, say := range map[string]string{
		"{age: 90}":                         "with its unit",
		"{age: 36501d}":                     "must be from",
		"{age: -1h}":                        "must be from",
		"{age: 1d-1h}":                      "must be a duration",
		"{runs: -1}":                        "must be from",
		"{every: 0s}":                       "must be from",
		"{keep: 1}":                         "no such setting",
		"{workflows: [a]}":                  "must be written as",
		"{workflows: a}":                    "a section of workflows",
		"{workflows: {a: 7d}}":              "with an age, a number of runs, or both",
		"{workflows: {a: {}}}":              "with an age, a number of runs, or both",
		"{workflows: {a: {days: 7}}}":       "the members are age and runs",
		"{workflows: {a: {age: 7}}}":        "age must be a duration",
		"{workflows: {a: {runs: x}}}":       "runs must be a whole number",
		"{workflows: {a: {age: -7d}}}":      "age must be a duration",
		"{workflows: {\"a b\": {runs: 1}}}": "must be written as",
	} {
		_, err := config.Load(config.Sources{File: "f.yaml", Data: []byte("retention: " + file)})
		if err == nil || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "f.yaml:1") {
			t.Errorf("%s: %v, want %s", file, err, say)
		}
	}
	for _, v := range []string{"a", "a:age=1d,a:runs=1", "a:age=1d:age=2d", "a:x=1"} {
		if _, err := config.Load(config.Sources{Env: []string{"PARLEY_RETENTION__WORKFLOWS=" + v}}); err == nil {
			t.Errorf("%s was taken", v)
		}
	}
}
