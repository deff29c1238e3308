package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Retention says how long runs are kept that are over. 0 is for ever.
type Retention struct {
	Age  time.Duration `koanf:"age"`
	Runs int           `koanf:"runs"`
	// Every is the time between two looks.
	Every time.Duration `koanf:"every"`
	// Archive is the folder that runs are written to before they are removed; "" is
	// none.
	Archive string `koanf:"archive"`
	// Workflows are those that have rules of their own, by their ids.
	Workflows map[string]RetentionRule `koanf:"-"`
	// Rules are the Workflows as they are written.
	Rules []string `koanf:"workflows"`
}

// RetentionRule says how long the runs of one workflow are kept. What it leaves out
// is as for all others.
type RetentionRule struct {
	Age  *time.Duration
	Runs *int
}

const (
	day = 24 * time.Hour
	// mostAge and mostRuns bound what is kept.
	mostAge  = 36_500 * day
	mostRuns = 1_000_000_000
)

func retentionSettings() []Setting {
	return []Setting{
		{
			Path: "retention.age", Kind: KindDuration, Default: time.Duration(0), most: int64(mostAge), least: 0,
			Help: "how long runs are kept after their end, such as 90d (role executor); 0s: for ever",
		},
		{
			Path: "retention.runs", Kind: KindNumber, Default: int64(0), most: mostRuns, least: 0,
			Help: "how many runs of each workflow are kept after their end, the newest; 0: all",
		},
		{Path: "retention.every", Kind: KindDuration, Default: 10 * time.Minute, least: int64(time.Second), most: int64(day), Help: "time between two looks for runs to remove"},
		{Path: "retention.archive", Kind: KindFolder, Default: "", Help: "folder that runs are written to before they are removed; empty: nowhere"},
		{
			Path: "retention.workflows", Kind: KindRules, Default: []string{},
			Help: "workflows with an age or a number of runs of their own: {ID: {age: 7d, runs: 100}}; in variables and flags ID:age=7d:runs=100",
		},
	}
}

var ruleForm = regexp.MustCompile(`^([^:,\s]{1,255})((?::(?:age|runs)=[^:,\s]+){1,2})$`)

// readRule reads one workflow's rule.
func readRule(text string) (id string, rule RetentionRule, err error) {
	m := ruleForm.FindStringSubmatch(text)
	if m == nil {
		return "", rule, fmt.Errorf("must be written as ID:age=7d:runs=100, not %s", shown(text))
	}
	for _, part := range strings.Split(m[2], ":")[1:] {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case name == "age" && rule.Age == nil:
			d, err := parseDuration(value)
			if err != nil || d < 0 || d > mostAge {
				return "", rule, fmt.Errorf("%s: age must be a duration from 0s to 36500d, such as 7d or 12h", m[1])
			}
			rule.Age = &d
		case name == "runs" && rule.Runs == nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > mostRuns {
				return "", rule, fmt.Errorf("%s: runs must be a whole number from 0 to %d", m[1], mostRuns)
			}
			rule.Runs = &n
		default:
			return "", rule, fmt.Errorf("%s: %s is given twice", m[1], name)
		}
	}
	return m[1], rule, nil
}

// checkRules refuses rules that cannot be read, and workflows that have two.
func checkRules(items []string) (any, error) {
	if len(items) > maxItems {
		return nil, fmt.Errorf("has %d workflows, the limit is %d", len(items), maxItems)
	}
	seen := map[string]bool{}
	for _, item := range items {
		id, _, err := readRule(item)
		if err != nil {
			return nil, err
		}
		if seen[id] {
			return nil, fmt.Errorf("names %s twice", shown(id))
		}
		seen[id] = true
	}
	return items, nil
}

// rules reads the section of workflows in the file, or the list of them that a view
// prints.
func (s Setting) rules(n *yaml.Node) (any, error) {
	if n.Kind == yaml.SequenceNode {
		list, err := s.list(n)
		if items, ok := list.([]string); ok && err == nil {
			return checkRules(items)
		}
		return nil, err
	}
	if n.Kind != yaml.MappingNode {
		return nil, wrongType("must be a section of workflows: {ID: {age: 7d, runs: 100}}")
	}
	var items []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		id, rule := n.Content[i], n.Content[i+1]
		if id.Kind != yaml.ScalarNode || rule.Kind != yaml.MappingNode || len(rule.Content) == 0 {
			return nil, wrongType("line %d: must be a workflow's id with an age, a number of runs, or both: {age: 7d, runs: 100}", id.Line)
		}
		parts := []string{id.Value}
		for j := 0; j+1 < len(rule.Content); j += 2 {
			name, value := rule.Content[j], rule.Content[j+1]
			if !slices.Contains([]string{"age", "runs"}, name.Value) || value.Kind != yaml.ScalarNode {
				return nil, wrongType("line %d: %s: the members are age and runs", name.Line, id.Value)
			}
			parts = append(parts, name.Value+"="+value.Value)
		}
		items = append(items, strings.Join(parts, ":"))
	}
	return checkRules(items)
}

// read fills in the workflows.
func (r *Retention) read() {
	r.Workflows = map[string]RetentionRule{}
	for _, item := range r.Rules {
		if id, rule, err := readRule(item); err == nil {
			r.Workflows[id] = rule
		}
	}
}

// parseDuration reads a duration, which may begin with days.
func parseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || rest == "" {
		return time.Duration(n) * day, err
	}
	d, err := time.ParseDuration(rest)
	if err == nil && d < 0 {
		err = fmt.Errorf("must not be negative behind its days")
	}
	return time.Duration(n)*day + d, err
}
