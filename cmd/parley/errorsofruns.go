package main

import (
	"slices"

	"github.com/parley-project/parley"
)

// runErrors are those of runs and of their steps, but for what agents answer.
func runErrors() []errorEntry {
	return slices.Concat(stepErrors(), compositeErrors())
}

// stepErrors are those of every kind of step.
func stepErrors() []errorEntry {
	return []errorEntry{
		{
			Code: string(parley.CodeTimeout), In: []string{metRun, metRequest, metCommand}, Retry: retryPerhaps,
			Meaning: "A time is over; details.limit says which: timeout of the step, attempt_timeout, exchange (one HTTP exchange) or run. While a command waits (--timeout) it ends with exit code 7, and the run goes on.",
			Causes:  []string{"an agent that is slower than its timeout", "a limit that is too short for the work", "a question that nobody answered in time"},
			Next:    []string{"look which limit it was: parley run show RUN -o json", "raise that limit in the workflow or with parley agent set NAME --timeout", "then: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeStalled), In: []string{metRun}, Retry: retryYes,
			Meaning: "Nothing was heard of the agent for the step's silence. Retried by default.",
			Causes:  []string{"an agent that hangs, or has lost the task in a restart", "an agent that works long without a word of progress"},
			Next:    []string{"look at the agent: parley agent check NAME", "give a slow agent a longer silence in the step"},
		},
		{
			Code: string(parley.CodeInvalidInput), In: []string{metRun, metRequest}, Retry: retryNo,
			Meaning: "An input does not fit the schema of its workflow, or a member of a step has a value that it cannot have.",
			Causes:  []string{"a member of the input that is missing, misspelt or of another type", "a for_each that is no list"},
			Next:    []string{"see what the workflow takes: parley workflow show NAME", "start again with --input or --set as the schema says"},
		},
		{
			Code: string(parley.CodeInvalidOutput), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "What an agent has answered, or what the step makes of it, does not fit the step's schema, or cannot be read as asked (parse: json).",
			Causes:  []string{"an agent that writes other members than it was asked for", "text around the JSON of an answer"},
			Next:    []string{"look at the answer: parley run attempts RUN", "say in the step's input what form is wanted, or widen schema", "to ask again by itself: retry: {on: [invalid_output]}"},
		},
		{
			Code: string(parley.CodeValidationFailed), In: []string{metRun}, Retry: retryNo,
			Meaning: "The value of a validate step does not fit its schema; details lists the places.",
			Causes:  []string{"an earlier step that made another value than the schema wants"},
			Next:    []string{"see the places: parley run show RUN -o json", "correct the schema or the step that makes the value, then parley run rerun RUN --from STEP"},
		},
		{
			Code: string(parley.CodeApprovalRejected), In: []string{metRun}, Retry: retryNo,
			Meaning: "Somebody rejected what an approval step asked for; details says who, when and why.",
			Causes:  []string{"a person chose reject"},
			Next:    []string{"read why: parley run show RUN", "to ask once more: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeExpression), In: []string{metRun, metRequest, metDocument}, Retry: retryNo,
			Meaning: "Something in ${…} or a condition cannot be read or evaluated; the text names the member and the reference.",
			Causes:  []string{"a reference to a member that the value does not have", "an operation on values of another type", "a step that was skipped, and so has no output"},
			Next:    []string{"compare the reference with what the steps gave: parley run show RUN -o json", "try it without a server: parley workflow run --dry FILE"},
		},
		{
			Code: string(parley.CodeLimit), In: []string{metRun, metRequest, metDocument}, Retry: retryPerhaps,
			Meaning: "A limit was passed; the text and the details name it, its value and what was found. The HTTP status is 413 for a body that is too large, 429 for too many at once.",
			Causes:  []string{"an input, an output or a document that is too large or too deep", "too many open event streams, or queued runs"},
			Next:    []string{"send less, or raise the limit: parley config view --origin shows those of this machine", "of a 429: try again later"},
		},
		{
			Code: string(parley.CodeCancelled), In: []string{metRun, metRequest, metCommand}, Retry: retryNo,
			Meaning: "The run was cancelled, or the command was interrupted.",
			Causes:  []string{"parley run cancel or terminate, or a workflow that cancels its oldest run", "Ctrl-C"},
			Next:    []string{"see who and why: parley run events RUN", "to go on: parley run retry RUN"},
		},
	}
}

// compositeErrors are those of steps that have steps or runs of their own.
func compositeErrors() []errorEntry {
	return []errorEntry{
		{
			Code: string(parley.CodeSubWorkflowFailed), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "The run that a sub_workflow step has started has failed, or could not begin; cause is its error, details.run its id.",
			Causes:  []string{"a step of the other run failed", "the other workflow is not deployed, or its version is deprecated"},
			Next:    []string{"look at the other run: parley run show RUN (its id is in details.run)", "explain the cause's code: parley errors CODE"},
		},
		{
			Code: string(parley.CodeSubWorkflowCancelled), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "Somebody cancelled or terminated the run that a sub_workflow step waited for.",
			Causes:  []string{"parley run cancel or terminate of the other run"},
			Next:    []string{"see who and why: parley run events RUN of the other run", "parley run retry RUN"},
		},
		{
			Code: string(parley.CodeJoinFailed), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "Too few branches of a fork_join have completed; details.branches has the error of each that failed.",
			Causes:  []string{"a branch whose agent failed", "a join that wants more branches than may be expected"},
			Next:    []string{"see the errors: parley run show RUN -o json", "explain each code: parley errors CODE", "then: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeToleranceExceeded), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "More iterations of a loop failed than tolerate allows; cause is the first of their errors.",
			Causes:  []string{"items that the agent cannot handle", "an agent that is away"},
			Next:    []string{"see the cause: parley run show RUN", "raise tolerate, or correct the items", "then: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeMaxIterations), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "A repeat with on_max: fail has run max times, and what it repeats for did not hold.",
			Causes:  []string{"a condition that cannot come true", "an agent that needs more rounds"},
			Next:    []string{"see what the last round gave: parley run show RUN -o json", "raise max, or correct until"},
		},
		{
			Code: string(parley.CodeFinallyFailed), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "The workflow has completed, and a step of its finally failed; cause is that step's error.",
			Causes:  []string{"an agent that cleans up or reports failed"},
			Next:    []string{"see the cause: parley run show RUN", "explain its code: parley errors CODE"},
		},
		{
			Code: string(parley.CodePlanInvalid), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "What a plan step was to run is no list of steps, or holds what allow does not; details has every finding. No agent was called.",
			Causes:  []string{"an agent that plans with steps or agents that it may not use"},
			Next:    []string{"see the findings: parley run show RUN -o json", "tell the planning agent what is allowed, or widen allow"},
		},
	}
}

// agentErrors are those of calls of agents.
func agentErrors() []errorEntry {
	return []errorEntry{
		{
			Code: string(parley.CodeAgentUnavailable), In: []string{metRun, metRequest}, Retry: retryYes,
			Meaning: "The agent could not be reached, answered 429 or a failure of its own (5xx), or no access token for it could be had. Retried by default.",
			Causes:  []string{"the agent is not running, or its address is wrong", "it has too much to do", "its circuit breaker is open", "egress.allow does not let the server reach it"},
			Next:    []string{"parley agent check NAME", "parley agent health NAME", "when it is back: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeAgentError), In: []string{metRun, metRequest}, Retry: retryYes,
			Meaning: "The agent answered that it failed, or with something that is no answer. Retried by default.",
			Causes:  []string{"a fault of the agent, which its log tells", "an agent that speaks another protocol than its record says"},
			Next:    []string{"see what it said: parley run attempts RUN", "what does it speak: parley agent detect URL", "then: parley run retry RUN"},
		},
		{
			Code: string(parley.CodeAgentRejected), In: []string{metRun, metRequest}, Retry: retryNo,
			Meaning: "The agent does not accept the request: other 4xx, a redirect, a wrong method or parameter, a credential or a certificate that is refused.",
			Causes:  []string{"an input that the agent does not take", "a credential that is wrong or has expired", "protocol_config.method that the agent does not have"},
			Next:    []string{"look at the agent's record: parley agent show NAME", "parley agent check NAME", "correct it with parley agent set NAME, then parley run retry RUN"},
		},
		{
			Code: string(parley.CodeOutcomeUnknown), In: []string{metRun}, Retry: retryPerhaps,
			Meaning: "The agent may have done the task: its answer was lost, and its policy does not allow to find out. Never retried by itself.",
			Causes:  []string{"a connection that broke after the request was sent", "a process that died while the agent worked"},
			Next:    []string{"look at the agent whether the task was done", "if it may be done again: parley run retry RUN", "for agents that recognise a task id: parley agent set NAME --outcome-unknown resend"},
		},
		{
			Code: string(parley.CodeUnknownAgent), In: []string{metRun, metRequest, metDocument}, Retry: retryNo,
			Meaning: "No agent of that name is registered. In a document that is deployed it is a finding.",
			Causes:  []string{"a misspelt name", "an agent that was removed, or is registered on another server"},
			Next:    []string{"parley agent list", "parley agent add URL --name NAME"},
		},
	}
}
