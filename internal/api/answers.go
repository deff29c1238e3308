package api

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// maxReply bounds the text of an answer in characters, and its data in bytes.
const maxReply = 1 << 20

// The most roles that one answer names, and how long a name or a choice may be.
const (
	maxRoles = 100
	maxWho   = 255
)

// answerBody documents the body of an answer; answerRun reads it.
type answerBody struct {
	Step    string          `json:"step,omitempty" minLength:"1" maxLength:"16384" doc:"The step that waits; not needed if there is only one."`
	Text    string          `json:"text,omitempty" maxLength:"1048576" doc:"The answer to an agent's question as text. It needs text, data or both; at most 1 MiB in all. To an approval it is one of its choices, and nothing else."`
	Data    json.RawMessage `json:"data,omitempty" doc:"The answer, or a part of it, as any JSON value. That to an approval has to fit its form; without a choice and such a text it is the choice itself, or an object with the member choice or decision, perhaps comment, and those of the form."`
	Choice  string          `json:"choice,omitempty" minLength:"1" maxLength:"255" doc:"Answers an approval: one of its choices. It may also be the text or stand in the data."`
	Comment string          `json:"comment,omitempty" maxLength:"1048576" doc:"With a choice."`
	By      string          `json:"by,omitempty" minLength:"1" maxLength:"255" doc:"Who answers, as whoever holds the key says."`
	Roles   []string        `json:"roles,omitempty" maxItems:"100" doc:"What that person is besides, for an approval."`
}

// answerRun passes on what a person answers to an agent that waits, or to an
// approval.
func (s *server) answerRun(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Answer, "answer"}, false)
	if err != nil {
		return err
	}
	req := parley.AnswerRequest{Run: r.PathValue("id"), Reply: parley.Reply{By: callerOf(r)}}
	if v := o.text("step", 1, 16<<10); v != nil {
		req.Step = *v
	}
	if v := o.text("by", 1, maxWho); v != nil {
		req.Reply.By = *v
	}
	if o.given("choice") {
		o.choice(&req)
	} else {
		o.given("comment") // goes with a choice: only null may stand beside none
		o.reply(&req)
	}
	req.Roles = o.names("roles")
	if err := o.done(true); err != nil {
		return err
	}
	run, err := s.cfg.Runs.AnswerStep(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusAccepted, makeRun(run))
	return nil
}

// reply takes the answer to a question, or one to an approval whose choice is the
// text or stands in the data.
func (o *object) reply(req *parley.AnswerRequest) {
	neither := !o.given("text") && !o.given("data")
	if v := o.text("text", 0, maxReply); v != nil {
		req.Reply.Text = *v
	}
	req.Reply.Data = o.value("data", bodyLimit{maxReply, "data"})
	if neither {
		o.wrong("text", "required", "missing", "is required, or data, or choice for an approval")
	}
}

// choice takes the answer to an approval.
func (o *object) choice(req *parley.AnswerRequest) {
	if v := o.text("choice", 1, maxWho); v != nil {
		req.Choice = *v
	}
	for _, name := range []string{"text", "comment"} {
		if v := o.text(name, 0, maxReply); v != nil && *v != "" {
			req.Reply.Text = *v
		}
	}
	if o.has("data") {
		req.Reply.Data = o.value("data", bodyLimit{maxReply, "data"})
	}
}

// names takes a list of names.
func (o *object) names(name string) (list []string) {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	if json.Unmarshal(v, &list) != nil || len(list) > maxRoles {
		o.wrong(name, "type", "list_type", "must be a list of at most 100 strings")
		return nil
	}
	for _, text := range list {
		if utf8.RuneCountInString(text) > maxWho {
			o.wrong(name, "limit", "string_too_long", "must have at most 255 characters each")
		}
	}
	return list
}
