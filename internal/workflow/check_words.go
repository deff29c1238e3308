package workflow

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// checkWords are what people write who know other systems, and the member of ours
// that does it.
func checkWords() map[string][]string {
	return map[string][]string{
		"needs":       {"depends_on", "depends", "after", "requires", "dependencies"},
		"if":          {"when", "condition", "only_if"},
		"when":        {"if", "case", "condition"},
		"steps":       {"do", "tasks", "body", "stages", "jobs"},
		"input":       {"inputs", "with", "params", "parameters", "arguments", "args", "payload", "data"},
		"output":      {"outputs", "result", "returns"},
		"agent":       {"uses", "call", "task", "action", "use"},
		"for_each":    {"foreach", "each", "with_items", "loop", "map", "items"},
		"repeat":      {"while", "until", "do_while"},
		"on_error":    {"catch", "on_failure", "rescue", "error_handler", "continue_on_error"},
		"retry":       {"retries", "retry_policy", "max_retries", "retry_config"},
		"timeout":     {"timeout_seconds", "timeout_ms", "deadline", "timeout_minutes"},
		"attempts":    {"max_attempts", "max_retries", "retries", "count", "limit"},
		"delay":       {"initial_delay", "backoff", "interval", "initial_interval", "initial_delay_ms"},
		"multiplier":  {"backoff_multiplier", "backoff_rate", "backoff_coefficient"},
		"max_delay":   {"max_interval", "maximum_interval", "max_delay_ms"},
		"wait":        {"sleep", "pause", "timer"},
		"event":       {"wait_for_event", "wait_for", "signal", "receive"},
		"workflow":    {"sub_workflow", "subflow", "child", "run_workflow"},
		"finish":      {"return", "end", "exit", "terminate"},
		"fail":        {"throw", "raise"},
		"parallel":    {"concurrently", "all", "branches"},
		"finally":     {"cleanup", "always", "on_exit"},
		"triggers":    {"on", "schedule", "schedules", "trigger"},
		"name":        {"title"},
		"compensate":  {"undo", "rollback"},
		"concurrency": {"max_concurrency"},
		"cron":        {"expression", "crontab"},
		"every":       {"interval", "period", "rate"},
		"zone":        {"timezone", "time_zone", "tz", "location"},
		"overlap":     {"concurrency_policy", "overlap_policy"},
		"catch_up":    {"catchup_window", "starting_deadline", "misfire"},
		"secret":      {"token", "hmac", "signing_secret"},
		"topic":       {"topics", "queue"},
	}
}

// checkMeant is the suggestion for an unknown member: a name that is spelt like
// it, or the one that does what it says.
func (p *parser) checkMeant(name string, names []string) string {
	if len(p.problems) > problemsMax {
		return ""
	}
	snake, words := checkSnake(name), checkWords()
	for _, ours := range names {
		if slices.Contains(words[ours], snake) {
			return fmt.Sprintf("the member for that is %q", ours)
		}
	}
	return didYouMean(snake, names)
}

// checkSnake writes camelCase and kebab-case as ours are written.
func checkSnake(name string) string {
	var b strings.Builder
	for i, c := range name {
		switch {
		case c == '-':
			b.WriteByte('_')
		case unicode.IsUpper(c) && i > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
			b.WriteRune(unicode.ToLower(c))
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// asList suggests how one step is written as a list of steps.
func asList(n *node) string {
	if n.kind == nodeObject {
		return "begin each step with -, also if there is only one"
	}
	return ""
}
