package parley

// RunParent names the step that has started a run (language rule S11).
type RunParent struct {
	Run string `json:"run"`
	// Step is the path of its execution.
	Step string `json:"step"`
}

// ChildRun is the run that a sub_workflow step has started, or is about to start.
type ChildRun struct {
	// Run is "" until it has begun.
	Run      string `json:"run,omitempty"`
	Workflow string `json:"workflow"`
	// Version is "" as long as it is not known.
	Version string `json:"version,omitempty"`
	// Detached: nobody waits for it.
	Detached bool `json:"detached,omitempty"`
	// Status is that of the run; only explanations have it.
	Status RunStatus `json:"status,omitempty"`
}
