package a2a

import (
	"strconv"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// message is what a send carries.
type message struct {
	to Endpoint
	// plain leaves out everything that BR-1 does not list: nothing is known
	// about the agent.
	plain bool
	// id is the idempotency key: the same for every send of the same.
	id string
	// contextID continues a conversation, taskID a task that waits.
	contextID, taskID string
	// content is what it says.
	content content
	// wait asks the agent to answer when it has finished. Without it the agent
	// is asked to answer at once, which it may disregard.
	wait bool
	// push is where the agent may give hints, or zero.
	push pushTarget
}

// pushTarget is where an agent reports changes of a task, and what it shows
// there.
type pushTarget struct{ url, token string }

// writeSend makes the params of verbSend and verbStream.
func writeSend(vb verb, m *message) ([]byte, error) {
	size := len(m.content.input)
	b := make([]byte, 0, len(m.id)+size+size/8+len(m.contextID)+len(m.taskID)+len(m.push.url)+len(m.push.token)+256)
	if m.to.Version == V10 {
		return m.append10(b, vb)
	}
	return m.append03(b, vb)
}

// append03 writes MessageSendParams of A2A 0.3 (§7.1.1). Agents of the seeds
// get no kind: BR-1 lists none.
func (m *message) append03(b []byte, vb verb) ([]byte, error) {
	b = append(b, `{"message":{`...)
	if !m.plain {
		b = append(b, `"kind":"message",`...)
	}
	b = append(b, `"role":"user","messageId":`...)
	b = quote(b, m.id)
	b = append(b, `,"parts":`...)
	b, err := appendParts(b, m.content)
	if err != nil {
		return nil, err
	}
	b = m.appendIDs(b)
	b = append(b, '}')
	if m.plain {
		return append(b, '}'), nil
	}
	begun := len(b)
	if vb == verbSend {
		// 0.2 demands the list if there is a configuration at all; empty, it
		// excludes nothing.
		b = append(b, `,"configuration":{"acceptedOutputModes":[],"blocking":`...)
		b = strconv.AppendBool(b, m.wait)
	}
	if m.push.url != "" {
		b = m.begin(b, begun)
		b = append(b, `"pushNotificationConfig":{"url":`...)
		b = m.appendPush(b)
	}
	if len(b) > begun {
		b = append(b, '}')
	}
	return append(b, '}'), nil
}

// append10 writes SendMessageRequest of A2A 1.0 (§3.2.1).
func (m *message) append10(b []byte, vb verb) ([]byte, error) {
	b = appendTenant(append(b, '{'), m.to)
	b = append(b, `"message":{"messageId":`...)
	b = quote(b, m.id)
	b = m.appendIDs(b)
	b = append(b, `,"role":"ROLE_USER","parts":`...)
	b, err := appendParts(b, m.content)
	if err != nil {
		return nil, err
	}
	b = append(b, '}')
	begun := len(b)
	if vb == verbSend && !m.wait {
		b = append(b, `,"configuration":{"returnImmediately":true`...)
	}
	if m.push.url != "" {
		b = m.begin(b, begun)
		b = append(b, `"taskPushNotificationConfig":{"url":`...)
		b = m.appendPush(b)
	}
	if len(b) > begun {
		b = append(b, '}')
	}
	return append(b, '}'), nil
}

// begin begins the next member of the configuration, which begins at begun.
func (m *message) begin(b []byte, begun int) []byte {
	if len(b) > begun {
		return append(b, ',')
	}
	if m.to.Version == V03 {
		return append(b, `,"configuration":{"acceptedOutputModes":[],`...)
	}
	return append(b, `,"configuration":{`...)
}

func (m *message) appendPush(b []byte) []byte {
	b = quote(b, m.push.url)
	b = append(b, `,"token":`...)
	b = quote(b, m.push.token)
	return append(b, '}')
}

func (m *message) appendIDs(b []byte) []byte {
	if m.contextID != "" {
		b = append(b, `,"contextId":`...)
		b = quote(b, m.contextID)
	}
	if m.taskID != "" {
		b = append(b, `,"taskId":`...)
		b = quote(b, m.taskID)
	}
	return b
}

// appendTenant begins the params of 1.0. Over HTTP+JSON the tenant is in the
// path.
func appendTenant(b []byte, to Endpoint) []byte {
	if to.Tenant == "" || to.Binding == BindingREST {
		return b
	}
	b = append(b, `"tenant":`...)
	b = quote(b, to.Tenant)
	return append(b, ',')
}

// writeTask makes the params of verbGet, verbCancel and verbSubscribe. history is
// how many messages of its history a look at the task needs; 0.3 servers give
// all of it for a historyLength of 0, so it is left out there.
func writeTask(vb verb, to Endpoint, agentTaskID string, history int) ([]byte, error) {
	if agentTaskID == "" {
		return nil, bridge.Defectf("bad_id", "to %s needs the agent's task id", vb)
	}
	b := make([]byte, 0, len(agentTaskID)+len(to.Tenant)+48)
	b = append(b, '{')
	if to.Version == V10 {
		b = appendTenant(b, to)
	}
	b = append(b, `"id":`...)
	b = quote(b, agentTaskID)
	if to.Version == V10 && vb == verbGet {
		b = append(b, `,"historyLength":`...)
		b = strconv.AppendInt(b, int64(history), 10)
	}
	return append(b, '}'), nil
}

const (
	// pageSize is how many tasks one page has; more than 100 are refused by the
	// specification.
	pageSize = 100
	// smallPage is tried where such a page is larger than answers may be.
	smallPage = 10
	// maxPages bounds a look-up.
	maxPages = 10
	// pageHistory is how many of its newest messages a look-up asks for with
	// each task: the one that is looked for is a task's first.
	pageHistory = 100
	// wholeHistory is how many are read of a task that has more: agents put into it
	// whatever they say while they work.
	wholeHistory = 10_000
)

// pageOf is which page of a list is asked for.
type pageOf struct {
	token         string
	size, history int
}

// writeList makes the params of verbList (A2A 1.0 §3.1.4).
func writeList(to Endpoint, task parley.Task, page pageOf) []byte {
	b := appendTenant(append(make([]byte, 0, 128+len(task.ContextID)+len(page.token)), '{'), to)
	if task.ContextID != "" {
		b = append(b, `"contextId":`...)
		b = quote(b, task.ContextID)
		b = append(b, ',')
	}
	b = append(b, `"pageSize":`...)
	b = strconv.AppendInt(b, int64(page.size), 10)
	if page.token != "" {
		b = append(b, `,"pageToken":`...)
		b = quote(b, page.token)
	}
	b = append(b, `,"historyLength":`...)
	b = strconv.AppendInt(b, int64(page.history), 10)
	return append(b, '}')
}
