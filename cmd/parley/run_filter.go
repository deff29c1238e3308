package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// runFilter are the flags that select runs.
type runFilter struct {
	query                   client.RunQuery
	statuses, labels        []string
	after, before           string
	endedAfter, endedBefore string
	workflow                string
	// cmd is the command that has the flags, names those that select.
	cmd   *cobra.Command
	names []string
}

// add adds the flags to a command.
func (f *runFilter) add(cmd *cobra.Command) {
	f.cmd = cmd
	fl := cmd.Flags()
	fl.StringSliceVar(&f.statuses, "status", nil, "only runs in this status, or in one of several (FAILED,CANCELLED)")
	fl.StringVar(&f.workflow, "workflow", "", "only runs of this workflow, or of one version of it (NAME@VERSION)")
	fl.StringArrayVar(&f.labels, "label", nil, "only runs with this label: name=value")
	fl.StringVar(&f.query.Text, "text", "", "only with these words in the id, the workflow's name, or the error")
	fl.StringVar(&f.after, "after", "", "only created after this time, or within this time (1h)")
	fl.StringVar(&f.before, "before", "", "only created before this time, or longer ago (1h)")
	fl.StringVar(&f.endedAfter, "ended-after", "", "only ended after this time, or within this time (1h)")
	fl.StringVar(&f.endedBefore, "ended-before", "", "only ended before this time, or longer ago (1h)")
	fl.StringVar(&f.query.Parent, "parent", "", "only runs that steps of this run have started")
	fl.BoolVar(&f.query.Paused, "paused", false, "only runs that are paused")
	fl.BoolVar(&f.query.Hidden, "hidden", false, "also the runs of agent calls")
	complete(cmd, "status", runStatuses()...)
	f.names = []string{"status", "workflow", "label", "text", "after", "before", "ended-after", "ended-before", "parent", "paused"}
}

// given reports whether anything restricts the runs.
func (f *runFilter) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(f.names, func(name string) bool {
		return cmd.Flags().Changed(name) && (name != "paused" || f.query.Paused)
	})
}

// read completes the query from the flags.
func (f *runFilter) read(a *app) (err error) {
	if err := refuseEmpty(f.cmd, f.names); err != nil {
		return err
	}
	if strings.HasSuffix(f.workflow, "@") {
		return usagef("--workflow %s: the version is missing, which selects all of them", f.workflow)
	}
	f.query.Statuses = nil
	for _, s := range f.statuses {
		word := strings.ToUpper(strings.TrimSpace(s))
		if words := runStatuses(); !slices.Contains(words, word) {
			return usagef("--status %s: the statuses are %s", s, strings.Join(words, ", ")).withHint("%s", didYouMean(s, words))
		}
		f.query.Statuses = append(f.query.Statuses, parley.RunStatus(word))
	}
	f.query.Workflow, f.query.Version = f.workflow, ""
	if i := strings.LastIndexByte(f.workflow, '@'); i > 0 {
		f.query.Workflow, f.query.Version = f.workflow[:i], f.workflow[i+1:]
	}
	if f.query.Labels, err = parseLabels(f.labels); err != nil {
		return err
	}
	for _, l := range f.labels {
		if name, value, _ := strings.Cut(l, "="); f.query.Labels[name] != value {
			return usagef("--label %s: no run has that and %s=%s, since a label has one value", l, name, f.query.Labels[name])
		}
	}
	if f.query.CreatedAfter, err = a.readTime("after", f.after); err != nil {
		return err
	}
	if f.query.CreatedBefore, err = a.readTime("before", f.before); err != nil {
		return err
	}
	if f.query.EndedAfter, err = a.readTime("ended-after", f.endedAfter); err != nil {
		return err
	}
	f.query.EndedBefore, err = a.readTime("ended-before", f.endedBefore)
	return err
}
