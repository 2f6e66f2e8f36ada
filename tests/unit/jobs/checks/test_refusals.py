"""Refusals and talk about the text in many languages, and good texts that resemble them."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

REFUSALS = [
    "As an AI language model, I cannot summarize this text.",
    "As an AI, I don't have opinions.",
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I cannot provide a summary of this content.",
    "Sorry, I am unable to translate this.",
    "I cannot assist with this request.",
    "Unfortunately, I cannot fulfill this request.",
    "Please provide the text you would like me to summarize.",
    "Als KI-Sprachmodell kann ich diesen Text nicht übersetzen.",
    "Es tut mir leid, aber ich kann diese Anfrage nicht erfüllen.",
    "Leider kann ich dabei nicht helfen.",
    "En tant qu’IA, je ne peux pas donner d’avis.",
    "Je suis désolé, mais je ne peux pas répondre à cette demande.",
    "Lo siento, pero no puedo ayudar con eso.",
    "Como modelo de lenguaje, no tengo opiniones.",
    "Mi dispiace, ma non posso aiutarti con questa richiesta.",
    "Desculpe, mas não posso ajudar com isso.",
    "Het spijt me, maar ik kan dit niet vertalen.",
    "Przepraszam, ale nie mogę pomóc w tej sprawie.",
    "Извините, но я не могу помочь с этим запросом.",
    "Как языковая модель, я не имею мнения.",
    "Üzgünüm, bu isteğe yardımcı olamam.",
    "作为一个人工智能语言模型，我无法回答。",
    "抱歉，我无法提供该内容的摘要。",
    "很抱歉，我不能翻譯這段文字。",
    "申し訳ありませんが、そのリクエストにはお応えできません。",
    "AIとして、意見を述べることはできません。",
    "죄송하지만 요청하신 내용을 도와드릴 수 없습니다.",
    "عذراً، لا أستطيع مساعدتك في هذا الطلب.",
    "क्षमा करें, मैं इस अनुरोध में सहायता नहीं कर सकता।",
    "Tôi xin lỗi, nhưng tôi không thể giúp.",
    "Maaf, saya tidak dapat membantu.",
    "Cargo bikes are popular. I'm sorry, but I can't help with more.",
]
META = [
    "The text discusses how cargo bikes replace the second car.",
    "This article explores the rise of fermentation.",
    "The passage above describes a trend.",
    "According to the text, sales doubled.",
    "Here is a summary of the text: Sales doubled.",
    "Here are three hooks for your newsletter.",
    "Sure! Here's the translation.",
    "Summary: Sales doubled in a year.",
    "Sales doubled. The author of the text above says why.",
    "Der Text beschreibt, wie Lastenräder das Auto ersetzen.",
    "Dieser Artikel handelt von Lastenrädern.",
    "Laut dem Text stiegen die Verkäufe.",
    "Hier ist die Übersetzung: Alles wird gut.",
    "Übersetzung: Alles wird gut.",
    "Le texte explique comment les ventes ont doublé.",
    "Voici un résumé du texte.",
    "El texto describe cómo subieron las ventas.",
    "Il testo spiega come sono cresciute le vendite.",
    "O texto descreve como as vendas cresceram.",
    "De tekst beschrijft hoe de verkoop groeide.",
    "Tekst opisuje wzrost sprzedaży.",
    "В тексте говорится о росте продаж.",
    "Текст рассказывает о росте продаж.",
    "这篇文章讨论了新能源汽车的增长。",
    "本文介紹了發酵食品的流行。",
    "この記事では、発酵食品の人気について説明しています。",
    "이 글은 발효 식품의 인기를 설명한다.",
    "يناقش النص ارتفاع المبيعات.",
    "यह लेख बिक्री में वृद्धि के बारे में बताता है।",
    "Bu metin satışların artışını anlatıyor.",
]
GOOD = [
    "Cargo bikes are replacing the second car.",
    "“I'm sorry, but I can't help you,” the robot says to its first customer.",
    "Sorry, I can't come tomorrow: the shop is closed.",
    "As an AI company, Acme hires few engineers.",
    "AI is changing how we read.",
    "The report finds that sales doubled.",
    "The study describes three cases.",
    "A text message is enough to rent a bike.",
    "The source said that the ministry knew.",
    "Readers cannot get enough of fermented food.",
    "Hier ist Platz für zwei Kinder.",
    "Ich kann das Rad nicht tragen.",
    "Als Künstler lebt er in Köln.",
    "Leider kann man den Kuchen nicht essen.",
    "Das Buch beschreibt eine Reise.",
    "Je suis désolé pour ce retard.",
    "Lo siento mucho por el retraso.",
    "No puedo creerlo: las ventas se duplicaron.",
    "Извините за задержку поставок.",
    "人工智能正在改变汽车行业。",
    "抱歉让您久等了。",
    "AIの技術が広がっています。",
    "このバッグは軽い。",
    "이 자전거는 가볍다.",
    "هذا المتجر جديد.",
    "Einstellungen gespeichert",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(text: str) -> None:
    assert reason(checks.refusal(text)) is RejectionReason.REFUSAL


@pytest.mark.parametrize("text", META)
def test_talk_about_the_text(text: str) -> None:
    assert reason(checks.meta_talk(text)) is RejectionReason.META_TALK


@pytest.mark.parametrize("text", GOOD)
def test_good_texts(text: str) -> None:
    assert checks.refusal(text) is None
    assert checks.meta_talk(text) is None


def test_what_the_source_itself_says_may_be_rendered() -> None:
    assert checks.meta_talk("Dieser Artikel handelt von Lastenrädern.", "This article describes cargo bikes.") is None
    assert checks.meta_talk("Dieser Artikel handelt von Lastenrädern.", "Cargo bikes.") is not None
    assert checks.refusal("Leider kann ich dabei nicht helfen.", "I'm sorry, but I can't help with that.") is None
