package a2a

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// defect is something that an SDK does and that is no part of the protocol, or
// is left open by it.
type defect struct {
	// what the SDK does; its names are those of [route.label].
	what string
	// run is what a run sees of it.
	run string
	// tests hold on to both.
	tests string
}

// defects are all that were seen on the wire, in the order of the protocol: how
// messages are sent, tasks, streams, cancels, push, sizes, the other bindings.
func defects() []defect {
	return []defect{
		{"none deduplicates by messageId, also not two at once", "nothing is sent again that may have arrived", "TestQuirkSameMessageTwice TestQuirkSameMessageAtOnce TestLostAnswer TestKilledBeforeAnswer"},
		{"JAVA03 executes a repeated answer, and any message, on the finished task; the others refuse with -32004, -32602 or -32600", "an answer is sent once; a run that is over takes none", "TestQuirkEndedTask TestLostReply"},
		{"JAVA03 makes tasks by ids of the caller's", "Parley names tasks by the agent's ids alone", "TestQuirkUnknownTask"},
		{"requests with the id null, or none, are executed, but by PY03", "Parley's ids are never empty", "TestQuirkRequestID"},
		{"all wait for the end of the task by default; PY03 does not over gRPC", "Parley says whether it waits; gRPC of 0.3 is refused when the agent is registered", "TestQuirkWaitsByDefault TestQuirkGRPC03 TestBlocking"},
		{"the first answer to a send that does not wait is in any state, or a message", "each ends well", "TestQuirkFirstAnswer TestSend TestMessageOnly"},
		{"a task goes on when the client has left", "the task is looked up, or its outcome is unknown", "TestQuirkClientGone TestKilledBeforeAnswer TestLostAnswer"},
		{"PY10 and JS10 refuse requests without A2A-Version (-32009; dual JS10 -32601), JS10 also 1, 1.0.1 and 1.1; neither reads the query", "1.0 is sent as a header", "TestQuirkVersionHeader"},
		{"GO10 does not look at A2A-Version, even 9.9", "1.0 is sent as a header", "TestQuirkVersionHeader"},
		{"dual PY10 and JS10 refuse requests of 0.3 with version 1.0 (-32603, -32601)", "none is sent with 0.3", "TestQuirkVersionHeader TestDetectPinned"},
		{"JS03, JS10 and JAVA03 take application/json alone", "that is what is sent", "TestQuirkContentType"},
		{"JS03 answers what is no JSON with status 400, the others with 200", "errors are read whatever the status is", "TestQuirkErrorStatus TestQuirkCrash"},
		{"GO03 labels all its JSON text/plain, and dual GO10 the errors of 0.3", "both are read", "TestQuirkMediaType TestQuirkCrash"},
		{"PY03 writes times with +00:00, others with 3, 6 or 9 digits, or leave the first one out", "nothing: a run has times of its own", "TestQuirkTimestamps"},
		{"historyLength 0 brings all of the history with JS03, PY03, JAVA03 and dual PY10 in 0.3; JS03 gives none without it", "it is not sent in 0.3", "TestQuirkHistoryLength"},
		{"historyLength is not looked at in a send, but by PY10 and JS10", "it is not sent there", "TestQuirkHistoryLength"},
		{"tasks/list of GO03, and ListTasks of GO10 without an authenticator, answer -31401", "outcome_unknown after a lost answer, and one execution", "TestQuirkListTasks TestQuirkGoWithoutList"},
		{"pages over 100 are refused with -32602, by GO10 with -32600", "pages of 100 are asked for", "TestQuirkListTasks"},
		{"PY10 fills absent members in ListTasks with \"\" and []", "the task is found all the same", "TestQuirkFilledMembers TestLostAnswer"},
		{"tasks are found by a context of the caller's", "Parley makes up none", "TestQuirkListTasks TestQuirkUnknownTask"},
		{"a list as data is refused by PY03, GO03 and JAVA03, and taken by JS03", "in 0.3 it goes as {\"value\": …}", "TestQuirkDataList"},
		{"PY10 gives all numbers back as doubles: 42 is 42.0, and large integers change", "the output has what the agent gave", "TestQuirkPythonDoubles"},
		{"an error of the executor before any event is -32603 without a task, and a failed task with JS", "agent_error; failed, or found failed", "TestQuirkCrash"},
		{"an error after the hand-off leaves tasks at work for ever with PY03, JS03 and JAVA03", "the step's time limit ends it, and the agent is told to cancel", "TestQuirkCrash TestQuirkJavaCrash"},
		{"JAVA03 answers an executor's error, or does not answer, or leaves the task at work, as it happens", "agent_error, outcome_unknown or timeout, and one execution", "TestQuirkJavaCrash TestQuirkCrash"},
		{"a Python agent with a database that was killed leaves its tasks at work for ever", "the time limit, and the task is cancelled", "TestQuirkPythonWorksForEver"},
		{"an agent without a database forgets its tasks when it is restarted: -32001", "outcome_unknown, or a new send under resend", "TestAgentRestartedWithoutStore"},
		{"JS03 as CommonJS answers every error with -32603", "its words are read: outcome_unknown for a lost task", "TestQuirkCommonJS TestQuirkCommonJSCodes"},
		{"an answer in another context is refused with -32602, but taken by JS03 and JAVA03; without one all take it", "answers name the agent's context", "TestQuirkAnswerContext TestInputRequired"},
		{"a second message to a task at work: Go -32603; PY03, JS03, JS10 and JAVA03 run it beside the first; PY10 runs it on the finished task and drops its result", "a run takes no answer while its agent works (409)", "TestQuirkSecondMessageRaw TestQuirkSecondMessage"},
		{"streams have random ids with Go, ids from 0 with JAVA03, CRLF with Python", "ids are not used; all are read", "TestQuirkStreamForm TestStream"},
		{"Python sends comments every 15 seconds", "nothing", "TestQuirkPing"},
		{"JAVA03 streams begin with a status, and may be out of order", "the task is asked for; its artifact is right", "TestQuirkStreamForm TestStream"},
		{"a stream that is refused is an event with Go, PY03 and in 0.3, an answer with PY10 and JS10, event: error with JS03", "the task is asked for", "TestQuirkStreamRefused TestCutStream"},
		{"a stream to a task that has ended is refused with -32001 by Go and JAVA03, -32602 by PY03, -32004 by PY10 and JS10, and shown by JS03", "the task is asked for: -32001 alone is not believed", "TestQuirkStreamRefused TestCutStream"},
		{"a stream to a task that waits for an answer: Go and PY03 -32001, JS03 ends it, PY10 and JS10 keep it open, JAVA03 sends not even headers", "the question, within seconds", "TestQuirkReattachToQuestion TestStreamedQuestion TestParleyRestarted"},
		{"a stream to a task at work begins with the task in 1.0 and with JS03, and with what follows with PY03, GO03 and JAVA03, which counts its ids from 0 again", "the whole output, from a get", "TestQuirkReattach TestCutStream"},
		{"an executor's error cuts the stream with PY03, is event: error with PY10, a failed task without words with Go, and one with words with JS", "failed, found failed, or the step's time limit", "TestQuirkCrashInStream TestQuirkCrash"},
		{"a cancelled task is cancelled again by Go and JS10; the others answer -32002, as all do for a completed one", "the run is cancelled; -32002 is followed by a get", "TestQuirkCancelAgain TestCancel"},
		{"a refused cancel is -32002, and the task goes on; with PY10 it fails", "the run is cancelled when the grace is over", "TestQuirkCancelAgain TestCancelRefused"},
		{"JS answers a cancel only when the executor says that the task has ended", "the run is cancelled when the grace is over", "TestQuirkCancelWithoutEnd"},
		{"a push config that is not there is -32001 \"Task not found\" with PY10 and JS10, and -32603 with the others", "Parley never asks for one", "TestQuirkPushConfig"},
		{"the deletion of a push config is answered with neither result nor error by Go and PY03", "Parley deletes none", "TestQuirkPushConfig"},
		{"servers of 1.0 post 1.0 wrappers to hooks of 0.3, as application/a2a+json with JS; those of 0.3 post whole tasks", "all are hints that are taken", "TestPush"},
		{"GO10 names the token's header A2A-Notification-Token, the others X-A2A-Notification-Token", "both are taken", "TestPush"},
		{"with credentials for the hook JS10 sends no token, PY03 and JS03 no credentials", "Parley gives a token alone", "TestQuirkPushAuthentication TestPush"},
		{"posts overtake each other", "the task is asked for: the run ends once, and well", "TestPushOutOfOrder"},
		{"JAVA03 takes hooks and never posts", "the task is asked for", "TestPush"},
		{"the extended card that there is not is -32007 with Go and JAVA03, -32004 with PY10, JS03 and JS10, -32603 with PY03", "the public card stands", "TestQuirkExtendedCard TestQuirkExtendedCardAnnounced"},
		{"PY03 has its card at the old path too, the others at the new one alone; HEAD is 405 with Go and JAVA03", "it is got at the new one", "TestQuirkCardPath TestDetect"},
		{"dual servers have cards of both forms, and give tasks of one dialect in the other", "1.0 is chosen, unless it is pinned", "TestQuirkDual TestDetect TestDetectPinned"},
		{"JS03 and JS10 answer more than 100 KiB with 413 and HTML", "agent_rejected, which names the status", "TestQuirkJavaScriptBodyLimit"},
		{"PY03 answers more than 10 MB with 200 and -32600, JAVA03 answers 413 and resets the connection; PY10 and Go take it", "agent_rejected, or outcome_unknown where the reset comes first; Parley's own 8 MiB come first", "TestQuirkPayloadTooLarge"},
		{"HTTP+JSON: POST and GET subscribe, GO10 labels answers application/json; errors are google.rpc.Status", "GET is used, all are read", "TestQuirkREST TestFailed"},
		{"gRPC: JS10 refuses calls without a version; an executor's error is UNKNOWN with PY10, INTERNAL with GO10", "the version is sent; failed as over JSON-RPC", "TestQuirkGRPC TestQuirkCrash"},
	}
}

// TestDefects wants every defect to name tests that there are, and every test of
// a quirk to be named.
func TestDefects(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				there[f.Name.Name] = true
			}
		}
	}
	named := make(map[string]bool)
	for _, d := range defects() {
		tests := strings.Fields(d.tests)
		if d.what == "" || d.run == "" || len(tests) == 0 {
			t.Errorf("%q: %q, tests %q", d.what, d.run, tests)
		}
		for _, name := range tests {
			named[name] = true
			if !there[name] {
				t.Errorf("%q: there is no test %s", d.what, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if strings.HasPrefix(name, "TestQuirk") && !named[name] {
			t.Errorf("no defect names %s", name)
		}
	}
}
