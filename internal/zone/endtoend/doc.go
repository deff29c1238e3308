// Package endtoend has the tests of a whole zone connection: the two zones as
// processes of the program itself, a Slack and an agent that are not real, and what
// a person sees in the thread in the end.
package endtoend
