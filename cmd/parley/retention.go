package main

import (
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
)

// retention says how long runs are kept. A workflow's own rule leaves the rest as it
// is for all.
func retention(r config.Retention) server.Retention {
	all := server.RetentionRule{Age: r.Age, Runs: r.Runs}
	out := server.Retention{Rule: all, Workflows: map[string]server.RetentionRule{}, Every: r.Every, Archive: r.Archive}
	for id, own := range r.Workflows {
		rule := all
		if own.Age != nil {
			rule.Age = *own.Age
		}
		if own.Runs != nil {
			rule.Runs = *own.Runs
		}
		out.Workflows[id] = rule
	}
	return out
}
