package parley

// HookRequest is one delivery to the webhook of a workflow (language.md §8).
type HookRequest struct {
	// Workflow is a workflow_id or a name.
	Workflow string
	// Header has the names of the delivery's header in any case. What it says is not
	// signed.
	Header map[string][]string
	// Body reads the body, whole and as it was sent. It is not called if the
	// delivery is refused without.
	Body func() ([]byte, error)
}

// HookStatus says what became of a delivery.
type HookStatus string

// What becomes of deliveries.
const (
	// HookStarted: it has started a run.
	HookStarted HookStatus = "started"
	// HookRepeated: it was delivered before, and has started a run then.
	HookRepeated HookStatus = "repeated"
	// HookIgnored: no trigger wants it.
	HookIgnored HookStatus = "ignored"
)

// HookReceipt answers a [HookRequest].
type HookReceipt struct {
	Status HookStatus `json:"status"`
	// Run is the id of the run, "" if there is none.
	Run string `json:"run_id,omitempty"`
}
