package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// lister gives the names of one kind of thing.
type lister func(ctx context.Context, c *client.Client) ([]string, error)

// mostNames is how many names are looked through for a suggestion.
const mostNames = 100

func workflowNames(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Workflows(ctx, client.WorkflowQuery{Status: parley.AgentActive, Page: client.PageQuery{Size: mostNames}})
	var names []string
	for _, w := range page.Items {
		names = append(names, w.Workflow)
	}
	return names, err
}

func agentNames(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Agents(ctx, client.AgentQuery{Status: parley.AgentActive, Page: client.PageQuery{Size: mostNames}})
	var names []string
	for _, g := range page.Items {
		names = append(names, g.Name)
	}
	return names, err
}

func runIDs(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Runs(ctx, client.RunQuery{Page: client.PageQuery{Size: mostNames}})
	var ids []string
	for _, r := range page.Items {
		ids = append(ids, r.ID)
	}
	return ids, err
}

func deadLetterIDs(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.DeadLetters(ctx, client.DeadLetterQuery{Page: client.PageQuery{Size: mostNames}})
	var ids []string
	for i := range page.Items {
		ids = append(ids, page.Items[i].ID)
	}
	return ids, err
}

// lookUp bounds the questions that only make an answer nicer.
const lookUp = 2 * time.Second

// completeNames completes the first argument from what the server has.
func (a *app) completeNames(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), lookUp)
		defer cancel()
		names, err := list(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeDocuments offers names besides files.
func (a *app) completeDocuments(list lister) cobra.CompletionFunc {
	names := a.completeNames(list)
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, _ := names(cmd, nil, typed)
		return found, cobra.ShellCompDirectiveDefault
	}
}

// nameHint says what a name was meant to be one of, and what shows them all.
type nameHint struct {
	name    string
	list    lister
	command string
	// within shows what is in the one of that name, if there may be something.
	within string
}

// workflowHint is that of a workflow, which has versions.
func workflowHint(name string) nameHint {
	return nameHint{name: name, list: workflowNames, command: "parley workflow list", within: "parley workflow versions " + shellWord(name)}
}

// nearMiss adds the names that are near to an error about an unknown one.
func (a *app) nearMiss(ctx context.Context, c *client.Client, err error, h nameHint) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Code != parley.CodeNotFound {
		return err
	}
	f := classify(err)
	f.hint = h.command
	ctx, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	names, e := h.list(ctx, c)
	if e != nil {
		return f
	}
	if slices.Contains(names, h.name) { // something in it is not there
		f.hint = cmp.Or(h.within, h.command)
	} else if s := didYouMean(h.name, names); s != "" {
		f.hint = s
	}
	return f
}

// pageFlags are those of every list.
func pageFlags(f *pflag.FlagSet, p *client.PageQuery) {
	f.IntVar(&p.Size, "limit", 20, "items on a page, at most 100")
	f.IntVar(&p.Number, "page", 1, "number of the page, from 1")
}

func checkPage(p client.PageQuery) error {
	switch {
	case p.Size < 1 || p.Size > 100:
		return usagef("--limit %d: it must be 1 to 100", p.Size)
	case p.Number < 1:
		return usagef("--page %d: pages count from 1", p.Number)
	}
	return nil
}
