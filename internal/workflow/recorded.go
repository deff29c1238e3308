package workflow

import "github.com/parley-project/parley"

// Recorded gives the definition that the history of a run is read by which was
// not carried out here but taken over from another system: one agent step for
// each path that the events name, in their order. Such a run has ended, and
// what it was meant to do is not in it; only what was recorded of it is.
func Recorded(id, name string, events []parley.Event) *Definition {
	def := &Definition{ID: id, Name: name, Form: FormGraph, Body: &Block{}, Steps: make(map[string]*Step), Recorded: true}
	for i := range events {
		path := events[i].Step
		if path == "" || def.Steps[path] != nil {
			continue
		}
		step := &Step{ID: path, Kind: KindAgent, Block: def.Body, Index: len(def.Body.Steps)}
		def.Steps[path] = step
		def.Body.Steps = append(def.Body.Steps, step)
	}
	return def
}

// IDOf gives the workflow_id of a document that has a name and no workflow_id
// (language.md §1).
func IDOf(name string) string { return parseSlug(name) }
