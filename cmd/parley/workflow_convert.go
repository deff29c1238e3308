package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/convert"
)

// conversion is what a command line asks for.
type conversion struct {
	to, dir string
}

func newWorkflowConvert(a *app) *cobra.Command {
	var o conversion
	cmd := &cobra.Command{
		Use:   "convert FILE...",
		Short: "Write a workflow in the other of the two forms: list or graph",
		Long: `Write a workflow document in the other form: a plan (steps by id, start_step,
next_step) as a list of steps, in YAML, and a list as a plan, in JSON; -o yaml and
-o json choose. No server is needed. What comes of it makes the same calls with the
same inputs, and the same output. Members stay in their order, comments are lost.
What the other form cannot say is an error with its place, and nothing is written;
what had no meaning is left out, with a note.

Conditions of old plans become CEL that compares as they did; one thing differs: a
path that leads through a text or a number, which was null, is an error.

One document goes to standard output; several need --dir.`,
		Example: `  parley workflow convert plan.json > plan.yaml
  parley workflow convert story.yaml --to graph -o yaml
  parley workflow convert plans/*.json --dir workflows`,
		Args: need("FILE..."),
		RunE: func(_ *cobra.Command, args []string) error { return a.workflowConvert(args, o) },
	}
	cmd.Flags().StringVar(&o.to, "to", "", "list or graph (default: the form that the document is not in)")
	cmd.Flags().StringVar(&o.dir, "dir", "", "write each document into this folder, under its name; nothing is overwritten")
	complete(cmd, "to", forms()...)
	return cmd
}

func forms() []string { return []string{string(workflow.FormList), string(workflow.FormGraph)} }

func (a *app) workflowConvert(files []string, o conversion) error {
	switch {
	case o.to != "" && o.to != forms()[0] && o.to != forms()[1]:
		return usagef("--to %s: the forms are %s", o.to, strings.Join(forms(), ", ")).withHint("%s", didYouMean(o.to, forms()))
	case len(files) > 1 && o.dir == "":
		return usagef("several documents need --dir, the folder that they are written into")
	}
	if err := checkFiles(files); err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if err := a.convertOne(file, o); err != nil {
			a.report(err)
			errs = append(errs, err)
		}
	}
	return a.all(errs)
}

func (a *app) convertOne(file string, o conversion) error {
	name, source, err := a.readDocument(file)
	if err != nil {
		return err
	}
	form := workflow.Form(o.to)
	tree, problems := workflow.ReadTree(workflow.ParseOptions{File: name}, source)
	if tree == nil {
		return a.unreadable(name, problems)
	}
	if form == "" {
		form = convert.Other(tree.Form())
	}
	if form == tree.Form() {
		a.note("%s is in %s form already", name, form)
	}
	doc, problems := convert.To(form, name, source)
	a.problems(problems)
	if doc == nil {
		return invalidf("%s cannot be written in %s form: %s", name, form, plural(errorCount(problems), "finding"))
	}
	out, ext, err := a.written(doc, form)
	if err != nil {
		return err
	}
	if o.dir == "" {
		_, err := a.stdout.Write(out)
		return err
	}
	base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)) + ext
	return a.writeNew(filepath.Join(o.dir, base), out)
}

// written gives the text of a document: YAML for lists and JSON for plans, unless
// -o says otherwise.
func (a *app) written(doc *workflow.Value, form workflow.Form) (text []byte, ext string, err error) {
	raw := harmless(doc.JSON())
	switch {
	case a.flags.output == "jsonl":
		return append(raw, '\n'), ".json", nil
	case a.flags.output == "json", a.human() && form == workflow.FormGraph:
		return append(indent(raw), '\n'), ".json", nil
	}
	text, err = toYAML(raw)
	return text, ".yaml", err
}

// writeNew writes a file that is not there yet.
func (a *app) writeNew(name string, text []byte) error {
	if err := os.MkdirAll(a.path(filepath.Dir(name)), 0o755); err != nil {
		return &failure{exit: exitFailed, code: parley.CodeInternal, text: err.Error()}
	}
	f, err := os.OpenFile(a.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &failure{exit: exitConflict, code: parley.CodeConflict, text: fmt.Sprintf("%s is there already", name), hint: "remove it, or give another --dir"}
	}
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return &failure{exit: exitFailed, code: parley.CodeInternal, text: err.Error()}
	}
	a.note("%s written", name)
	return nil
}
