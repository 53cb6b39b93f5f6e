"""Judgement: rates, load and floor -> verdict, causes, alarms."""
