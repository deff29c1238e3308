package main

import "slices"

// documentErrors are findings in workflows, agents files and scripts.
func documentErrors() []errorEntry {
	return slices.Concat(formErrors(), senseErrors())
}

// formErrors are findings about how a document is written.
func formErrors() []errorEntry {
	return []errorEntry{
		{
			Code: "syntax", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The text is no YAML or JSON, or an expression cannot be read.",
			Causes:  []string{"an indentation, quote or bracket that is wrong"},
			Next:    []string{"look at the line and column that the finding names"},
		},
		{
			Code: "duplicate_key", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A member, or an item that must have a name of its own, is there twice.",
			Causes:  []string{"a copied block"},
			Next:    []string{"remove one of the two"},
		},
		{
			Code: "unknown_member", In: []string{metDocument}, Retry: retryNo,
			Meaning: "There is no such member here; it is a warning where it has no effect.",
			Causes:  []string{"a misspelt member, or one at the wrong depth"},
			Next:    []string{"take the suggestion, or look into the schema: parley schema workflow"},
		},
		{
			Code: "type", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The value is of another type than wanted, such as text in place of a number.",
			Causes:  []string{"quotes around a number, a list in place of one item"},
			Next:    []string{"write the type that the finding names"},
		},
		{
			Code: "required", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A member that must be there is missing.",
			Causes:  []string{"a member that was forgotten or is misspelt"},
			Next:    []string{"add it"},
		},
		{
			Code: "value", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The value cannot be taken: it is out of bounds, or not one of those that there are.",
			Causes:  []string{"a misspelt word, a number that is too large"},
			Next:    []string{"take a value that the finding names"},
		},
		{
			Code: "id", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The id of a step or a workflow is not one: it has other characters than it may, is too long, or is taken.",
			Causes:  []string{"spaces or signs in an id", "two steps of one id"},
			Next:    []string{"rename it"},
		},
	}
}

// senseErrors are findings about what it says.
func senseErrors() []errorEntry {
	return []errorEntry{
		{
			Code: "reference", In: []string{metDocument}, Retry: retryNo,
			Meaning: "Something refers to what is not there, or not yet there.",
			Causes:  []string{"the id of a step that was renamed", "a step that runs later or in another branch"},
			Next:    []string{"take the suggestion", "see the order of the steps: parley workflow graph FILE"},
		},
		{
			Code: "unsupported", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The form is known, and this Parley does not run it.",
			Causes:  []string{"a document of another version of the language"},
			Next:    []string{"write it as the finding says: docs/workflows.md"},
		},
		{
			Code: "unreachable", In: []string{metCommand, metDocument}, Retry: retryYes, ExitCode: exitUnreachable,
			Meaning: "The server, or the peer, cannot be reached. As a finding in a workflow: the step can never run.",
			Causes:  []string{"no server runs at that address", "a name, port or proxy that is wrong", "in a workflow: a next_step that passes the step by"},
			Next:    []string{"start a server: parley dev; or name one with --url, --context or PARLEY_URL", "what was asked for may have been done if the connection broke: look before you repeat it", "in a workflow: parley workflow graph FILE"},
		},
		{
			Code: "schema", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A JSON Schema in the document is not valid, or a value beside it does not fit it.",
			Causes:  []string{"a misspelt keyword", "a default of another type"},
			Next:    []string{"correct the schema at the place that the finding names"},
		},
		{
			Code: "trigger", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A trigger can start nothing on this server; a warning.",
			Causes:  []string{"no Kafka, or a topic that is not the trigger's own", "a webhook's secret that is not there"},
			Next:    []string{"do what the finding suggests, then deploy again"},
		},
		{
			Code: "unknown_workflow", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A sub_workflow step names a workflow that is not deployed; a warning.",
			Causes:  []string{"workflows that are deployed in another order"},
			Next:    []string{"deploy it before a run starts: parley workflow apply FILE"},
		},
		{
			Code: "session_ignored", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A step has a session, and its agent's protocol knows no conversations; a warning.",
			Causes:  []string{"an agent that does not speak A2A (jsonrpc-2.0)"},
			Next:    []string{"leave session out, and hand on in input what the agent has to know", "see what the agent speaks: parley agent show NAME"},
		},
		{
			Code: "convert", In: []string{metDocument}, Retry: retryNo,
			Meaning: "The other form of the language cannot say this.",
			Causes:  []string{"a step or member that only one of the forms has"},
			Next:    []string{"rewrite the place, or stay with the form that you have"},
		},
		{
			Code: "left_out", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A member has no meaning in the other form, and was left out; a warning.",
			Causes:  []string{"notes of an editor, layout"},
			Next:    []string{"check that nothing depends on it"},
		},
		{
			Code: "protocol_config", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A setting of the agent's protocol is not one, or does not go with the others.",
			Causes:  []string{"a setting of another protocol"},
			Next:    []string{"what there is: docs/protocols.md"},
		},
	}
}

// settingErrors are findings in the configuration.
func settingErrors() []errorEntry {
	return []errorEntry{
		{
			Code: "unknown", In: []string{metDocument}, Retry: retryNo,
			Meaning: "There is no such setting.",
			Causes:  []string{"a misspelt name in the file, a variable or a flag"},
			Next:    []string{"take the suggestion; all settings: parley config view"},
		},
		{
			Code: "duplicate", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A setting is given twice in one place.",
			Causes:  []string{"a copied block"},
			Next:    []string{"remove one of the two; where a value comes from: parley config view --origin"},
		},
		{
			Code: "secret", In: []string{metDocument}, Retry: retryNo,
			Meaning: "A secret's reference leads nowhere, or the secret is written where a reference belongs.",
			Causes:  []string{"a variable or file that is not there", "a literal"},
			Next:    []string{"write env:NAME or file:PATH"},
		},
	}
}

// commandErrors are what commands say by themselves.
func commandErrors() []errorEntry {
	return []errorEntry{
		{
			Code: "usage", In: []string{metCommand}, Retry: retryNo, ExitCode: exitUsage,
			Meaning: "The command line, or a file that it names, cannot be used.",
			Causes:  []string{"a misspelt flag or argument", "flags that exclude each other"},
			Next:    []string{"what the command takes: add --help"},
		},
		{
			Code: "failed", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitRunFailed,
			Meaning: "The run failed, and has no error that says why.",
			Causes:  []string{"a run of an old version"},
			Next:    []string{"parley run show RUN"},
		},
		{
			Code: "interrupted", In: []string{metCommand}, Retry: retryYes, ExitCode: exitTimedOut,
			Meaning: "The wait was interrupted; the run goes on.",
			Causes:  []string{"Ctrl-C"},
			Next:    []string{"look again: parley run watch RUN", "to end the run: parley run cancel RUN"},
		},
		{
			Code: "incomplete", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitFailed,
			Meaning: "A command about many did it for some of them.",
			Causes:  []string{"some that changed meanwhile, or were refused"},
			Next:    []string{"look at the lines above the error, then repeat it for the rest"},
		},
		{
			Code: "expectation", In: []string{metCommand}, Retry: retryNo, ExitCode: exitFailed,
			Meaning: "A dry run went another way than its script expects.",
			Causes:  []string{"a workflow or a script that was changed alone"},
			Next:    []string{"compare the lines above the error with the script"},
		},
		{
			Code: "unsound", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitFailed,
			Meaning: "A check of parley doctor has failed.",
			Causes:  []string{"what the lines that begin with fail name"},
			Next:    []string{"do what stands after the arrow of each, then parley doctor again"},
		},
		{
			Code: "different", In: []string{metCommand}, Retry: retryNo, ExitCode: exitFailed,
			Meaning: "The two documents that were compared differ. Nothing is printed for it but the differences.",
			Causes:  []string{"parley workflow diff found differences"},
			Next:    []string{"none: the exit code is the answer"},
		},
		{
			Code: "listen", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitFailed,
			Meaning: "The address cannot be listened at.",
			Causes:  []string{"another program listens there", "a port below 1024 without the right to it"},
			Next:    []string{"take another port; 0 picks a free one"},
		},
		{
			Code: "rpc", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitFailed,
			Meaning: "A JSON-RPC exchange cannot be gone on with.",
			Causes:  []string{"a peer that sends what is no JSON-RPC", "a limit of this side"},
			Next:    []string{"watch what is sent: parley rpc proxy A B --trace FILE"},
		},
		{
			Code: "rpc_error", In: []string{metCommand}, Retry: retryPerhaps, ExitCode: exitFailed,
			Meaning: "A JSON-RPC peer answered with an error, whose number stands in the text. The exit code is 3 for -32601 and 2 for -32602.",
			Causes:  []string{"what the number says"},
			Next:    []string{"explain the number: parley errors -32601"},
		},
	}
}
