package parley

import (
	"encoding/json"
	"time"
)

// Approval is what a step of kind approval asks of people (language rule C9).
type Approval struct {
	Title string `json:"title"`
	// To are the roles and users that may answer; anybody may if there are none.
	To []string `json:"to"`
	// Choices are the answers that there are.
	Choices []string `json:"choices"`
	// Min is how many different people have to agree.
	Min int `json:"min"`
	// Form is the JSON Schema that the data of an answer has to fit; nil is none.
	Form json.RawMessage `json:"form,omitempty"`
	// Answers are those that were given so far, none of which has decided.
	Answers []ApprovalAnswer `json:"answers,omitempty"`
	// EscalateAt is when more people may answer, Deadline when the step's time is
	// up, and OnTimeout the choice that counts then; without one it fails.
	EscalateAt *time.Time `json:"escalate_at,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	OnTimeout  string     `json:"on_timeout,omitempty"`
}

// ApprovalAnswer is what one person has answered.
type ApprovalAnswer struct {
	Choice  string          `json:"choice"`
	By      string          `json:"by"`
	At      time.Time       `json:"at"`
	Comment string          `json:"comment,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// ApprovalItem is an approval that waits, in a list of them.
type ApprovalItem struct {
	Run       string    `json:"run"`
	Step      string    `json:"step"`
	Workflow  string    `json:"workflow"`
	CreatedAt time.Time `json:"created_at"`
	Approval
	// Unreadable: what is asked cannot be read, and is left out. The server's log says
	// why.
	Unreadable bool `json:"unreadable,omitempty"`
}

// ApprovalQuery selects approvals that wait. Zero members don't restrict.
type ApprovalQuery struct {
	Run, Workflow string
	// For are roles and users of which one at least may answer.
	For  []string
	Page Page
}
