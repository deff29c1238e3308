package verification

import (
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// The names of texts besides the reasons of package zone and, with "transport."
// before them, its classes.
const (
	textNotAllowed  = "not_allowed"
	textRateLimited = "rate_limited"
	textTooLong     = "too_long"
	textEmpty       = "empty"
	textFiles       = "too_many_files"
	textFileType    = "file_type"
	textFileSize    = "file_size"
	textBusy        = "busy"
	textNoAnswer    = "no_answer"
	textUnknown     = "unknown_outcome"
	textFilesOnly   = "files_only"
	textWorking     = "working"
	textInFile      = "answer_in_file"
	// textAttachment is a reason of zones that read the files themselves.
	textAttachment   = "attachment"
	textReference    = "reference"
	transportText    = "transport."
	referencePattern = "{id}"
)

// english and japanese have a text for everything that can happen. None names a
// part of the machinery.
var english = map[string]string{
	textNotAllowed:  "Sorry, I am not set up to answer here. Please ask the people who run this app.",
	textRateLimited: "You are asking faster than I can answer. Please wait a minute and try again.",
	textTooLong:     "That question is too long for me. Please make it shorter.",
	textEmpty:       "I did not see a question. What would you like to know?",
	textFiles:       "Those are too many files at once. Please send fewer.",
	textFileType:    "I cannot read that kind of file.",
	textFileSize:    "That file is too large for me.",
	textBusy:        "There is a lot to do at the moment. Please ask again in a few minutes.",
	textNoAnswer:    "I have finished, but there is nothing to show for it. Please ask in other words.",
	textUnknown:     "I lost track of your question and cannot tell what became of it. Please ask again if you still need the answer.",
	textFilesOnly:   "Please look at the attached files.",
	textWorking:     "is thinking…",
	textAttachment:  "I could not read the attached files. Please check them and try again.",
	textInFile:      "The answer is long, so it is in the file below.",
	textReference:   "(reference: {id})",

	string(zone.ReasonParseError):     internalEN,
	string(zone.ReasonInvalidRequest): internalEN,
	string(zone.ReasonUnknownMethod):  internalEN,
	string(zone.ReasonInvalidParams):  "I could not work with that question. Please ask it in another way.",
	string(zone.ReasonIDReused):       internalEN,
	string(zone.ReasonTooLarge):       "That is more than I can work with at once. Please ask for less.",
	string(zone.ReasonInternal):       internalEN,
	string(zone.ReasonTimeout):        "This took too long, so I have stopped. Please try again, or ask for less at once.",
	string(zone.ReasonOverloaded):     "There is a lot to do at the moment. Please ask again in a few minutes.",
	string(zone.ReasonStopping):       unavailableEN,
	string(zone.ReasonUnknownTask):    "I lost track of your question and cannot tell what became of it. Please ask again if you still need the answer.",
	string(zone.ReasonTaskFailed):     "I could not finish this. Please try again.",
	string(zone.ReasonCancelled):      "This was cancelled.",
	string(zone.ReasonUnauthorized):   unavailableEN,

	transportText + string(zone.ClassNotSent):        unavailableEN,
	transportText + string(zone.ClassThrottled):      "There is a lot to do at the moment. Please ask again in a few minutes.",
	transportText + string(zone.ClassConflict):       unavailableEN,
	transportText + string(zone.ClassAuth):           unavailableEN,
	transportText + string(zone.ClassTooLarge):       "That is more than I can work with at once. Please ask for less.",
	transportText + string(zone.ClassUnavailable):    unavailableEN,
	transportText + string(zone.ClassUnknownOutcome): "I lost track of your question and cannot tell what became of it. Please ask again if you still need the answer.",
	transportText + string(zone.ClassBadResponse):    internalEN,
}

const (
	internalEN    = "Something went wrong on our side. Please try again later."
	unavailableEN = "I cannot be reached at the moment. Please try again in a few minutes."
	internalJA    = "内部で問題が発生しました。しばらくしてからもう一度お試しください。"
	unavailableJA = "現在応答できません。数分後にもう一度お試しください。"
	busyJA        = "ただいま混み合っています。数分後にもう一度お試しください。"
	lostJA        = "ご質問の処理結果を確認できませんでした。必要な場合は、もう一度質問してください。"
	tooMuchJA     = "一度に扱える量を超えています。内容を減らしてお試しください。"
)

var japanese = map[string]string{
	textNotAllowed:  "申し訳ありませんが、ここでは回答できない設定になっています。アプリの管理者にお問い合わせください。",
	textRateLimited: "質問の間隔が短すぎます。1分ほど待ってからもう一度お試しください。",
	textTooLong:     "質問が長すぎます。短くしてもう一度お試しください。",
	textEmpty:       "質問が見つかりませんでした。何をお調べしますか？",
	textFiles:       "ファイルの数が多すぎます。減らしてもう一度お試しください。",
	textFileType:    "この種類のファイルは読み取れません。",
	textFileSize:    "ファイルが大きすぎます。",
	textBusy:        busyJA,
	textNoAnswer:    "処理は完了しましたが、表示できる結果がありません。別の言い方で質問してみてください。",
	textUnknown:     lostJA,
	textFilesOnly:   "添付ファイルを確認してください。",
	textWorking:     "考え中です…",
	textAttachment:  "添付ファイルを読み取れませんでした。ファイルを確認してもう一度お試しください。",
	textInFile:      "回答が長いため、次のファイルにまとめました。",
	textReference:   "（参照番号: {id}）",

	string(zone.ReasonParseError):     internalJA,
	string(zone.ReasonInvalidRequest): internalJA,
	string(zone.ReasonUnknownMethod):  internalJA,
	string(zone.ReasonInvalidParams):  "この質問は処理できませんでした。別の言い方でお試しください。",
	string(zone.ReasonIDReused):       internalJA,
	string(zone.ReasonTooLarge):       tooMuchJA,
	string(zone.ReasonInternal):       internalJA,
	string(zone.ReasonTimeout):        "時間がかかりすぎたため中止しました。もう一度試すか、内容を減らしてください。",
	string(zone.ReasonOverloaded):     busyJA,
	string(zone.ReasonStopping):       unavailableJA,
	string(zone.ReasonUnknownTask):    lostJA,
	string(zone.ReasonTaskFailed):     "処理を完了できませんでした。もう一度お試しください。",
	string(zone.ReasonCancelled):      "処理は取り消されました。",
	string(zone.ReasonUnauthorized):   unavailableJA,

	transportText + string(zone.ClassNotSent):        unavailableJA,
	transportText + string(zone.ClassThrottled):      busyJA,
	transportText + string(zone.ClassConflict):       unavailableJA,
	transportText + string(zone.ClassAuth):           unavailableJA,
	transportText + string(zone.ClassTooLarge):       tooMuchJA,
	transportText + string(zone.ClassUnavailable):    unavailableJA,
	transportText + string(zone.ClassUnknownOutcome): lostJA,
	transportText + string(zone.ClassBadResponse):    internalJA,
}

// TextNames gives the names of all texts, sorted.
func TextNames() []string { return slices.Sorted(maps.Keys(english)) }

// Texts are what people see instead of an answer. The zero value is not usable;
// see [NewTexts].
type Texts struct{ all map[string]string }

// NewTexts gives the texts of a language with some replaced. A reference to the
// logs stands where the text reference, unless it is empty, has {id}.
func NewTexts(language string, replaced map[string]string) (Texts, error) {
	var all map[string]string
	switch language {
	case "", "en":
		all = maps.Clone(english)
	case "ja":
		all = maps.Clone(japanese)
	default:
		return Texts{}, parley.Errorf(parley.CodeInvalid, "there are no texts in %q: the languages are en and ja", language)
	}
	for name, text := range replaced {
		if _, ok := all[name]; !ok {
			return Texts{}, parley.Errorf(parley.CodeInvalid, "there is no text %q; they are %s", name, strings.Join(TextNames(), ", "))
		}
		if strings.TrimSpace(text) == "" && name != textReference {
			return Texts{}, parley.Errorf(parley.CodeInvalid, "the text %q is empty: people would hear nothing", name)
		}
		all[name] = text
	}
	return Texts{all}, nil
}

func (t Texts) has(name string) bool { _, ok := t.all[name]; return ok }

// Get gives a text; one that is not known is that of an internal error.
func (t Texts) Get(name string) string {
	if text, ok := t.all[name]; ok {
		return text
	}
	return t.all[string(zone.ReasonInternal)]
}

// Failure gives the text of a failure, with the first letters of an id that finds
// it in the logs.
func (t Texts) Failure(name, correlation string) string {
	reference := strings.ReplaceAll(t.all[textReference], referencePattern, correlation[:min(len(correlation), 8)])
	if reference == "" {
		return t.Get(name)
	}
	return t.Get(name) + " " + reference
}
